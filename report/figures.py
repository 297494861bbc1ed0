"""The plots of a whole run as plotly figures in plain data: traces and axes. Colours are the page's, set in the browser by `meta`.

A trace's `meta.series` is the number of its colour (-1: not valid, muted); text is escaped, since plotly reads some HTML in it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from report import words
from report.answers import models
from report.records import Cell, Run

Figure = dict[str, Any]

_DASHES = ("solid", "dash", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star")


def latency_by_batch(run: Run) -> Figure:
    """Response time against batch size: p50 with its confidence limits, p99 dotted, a line per model and load level."""
    traces = []
    for place, (series, cells) in enumerate(_lines(run)):
        usable = [cell for cell in cells if cell.valid and cell.response_ms.p50 is not None]
        if usable:
            traces.append(
                _line(run, series, place, usable, [cell.response_ms.p50 for cell in usable], "p50 %{y:,.4~g} ms", error=_limits(usable))
            )
        tails = [cell for cell in usable if cell.response_ms.p99 is not None]
        if tails:
            tail = _line(run, series, place, tails, [cell.response_ms.p99 for cell in tails], "p99 %{y:,.4~g} ms")
            tail["line"], tail["showlegend"], tail["opacity"] = {"dash": "dot", "width": 1.5}, False, 0.75
            tail["marker"]["size"] = 5
            tail["name"] += ", p99"
            traces.append(tail)
    traces += _not_valid(run, lambda cell: cell.response_ms.p50)
    return {"data": traces, "layout": _batch_layout(run, "response time, ms")}


def throughput_by_batch(run: Run) -> Figure:
    """Images per second against batch size, a line per model and load level."""
    traces = []
    for place, (series, cells) in enumerate(_lines(run)):
        usable = [cell for cell in cells if cell.valid and cell.images_per_s]
        if usable:
            traces.append(_line(run, series, place, usable, [cell.images_per_s for cell in usable], "%{y:,.4~g} images/s"))
    traces += _not_valid(run, lambda cell: cell.images_per_s)
    return {"data": traces, "layout": _batch_layout(run, "images/s")}


def training_curve(run: Run, value: str) -> Figure:
    """Accuracy or loss on the training batches against the step, a line per model; `value` is the field's name."""
    traces = []
    for series, model in enumerate(models(run)):
        points = [point for point in (run.training[model].curve if model in run.training else ()) if getattr(point, value) is not None]
        if points:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(points) <= 30 else "lines",
                    "name": html.escape(model),
                    "x": [point.step for point in points],
                    "y": [compact(getattr(point, value)) for point in points],
                    "hovertemplate": f"{html.escape(model)}, step %{{x:,}}: %{{y:.4~g}}<extra></extra>",
                    "meta": {"series": series},
                    "marker": {"size": 5},
                }
            )
    axis: dict[str, Any] = {"title": {"text": f"{value} on a training batch"}}
    axis |= {"type": "log"} if value == "loss" else {"range": [0, 1.03], "tickformat": ".0%"}
    return {"data": traces, "layout": {"xaxis": {"title": {"text": "step"}, "tickformat": ","}, "yaxis": axis}}


def compact(value: float) -> float:
    """`value` to five significant digits: a plot needs no more, and the page stays small."""
    return float(f"{value:.5g}")


def _lines(run: Run) -> list[tuple[int, list[Cell]]]:
    groups: dict[tuple[str, str, float], list[Cell]] = {}
    for cell in sorted(run.cells, key=lambda cell: cell.batch_size):
        groups.setdefault((cell.model, *words.load_key(cell)), []).append(cell)
    names = models(run)
    return [(names.index(key[0]), groups[key]) for key in sorted(groups, key=lambda key: (names.index(key[0]), *key[1:]))]


def _line(
    run: Run, series: int, place: int, cells: Sequence[Cell], y: Sequence[float | None], shows: str, error: Any = None
) -> dict[str, Any]:
    levels = sorted({words.load_key(cell) for cell in run.cells})
    level = levels.index(words.load_key(cells[0]))
    name = html.escape(f"{cells[0].model}, {words.load_level(cells[0])}")
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": str(place),
        "x": [cell.batch_size for cell in cells],
        "y": [None if value is None else compact(value) for value in y],
        "hovertemplate": f"{name}<br>batch size %{{x}}: {shows}<extra></extra>",
        "line": {"dash": _DASHES[level % len(_DASHES)], "width": 2},
        "marker": {"symbol": _SYMBOLS[level % len(_SYMBOLS)], "size": 8},
        "meta": {"series": series},
    }
    return {**trace, "error_y": error} if error else trace


def _limits(cells: Sequence[Cell]) -> dict[str, Any]:
    above, below = [], []
    for cell in cells:
        limits = cell.response_ms.interval("p50")
        p50 = cell.response_ms.p50 or 0.0
        above.append(compact(limits[1] - p50) if limits else 0)
        below.append(compact(p50 - limits[0]) if limits else 0)
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 4}


def _not_valid(run: Run, value: Any) -> list[dict[str, Any]]:
    cells = [cell for cell in run.cells if not cell.valid and value(cell)]
    if not cells:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "not valid",
            "x": [cell.batch_size for cell in cells],
            "y": [compact(value(cell)) for cell in cells],
            "text": [html.escape(f"{words.cell_name(cell)}: {'; '.join(cell.reasons)}") for cell in cells],
            "hovertemplate": "not valid: %{text}<br>%{y:,.4~g}<extra></extra>",
            "marker": {"symbol": "x-thin", "size": 10, "line": {"width": 2}},
            "meta": {"series": -1},
        }
    ]


def _batch_layout(run: Run, title: str) -> dict[str, Any]:
    sizes = sorted({cell.batch_size for cell in run.cells})
    x = {
        "title": {"text": "batch size, images in one request"},
        "type": "log",
        "tickvals": sizes,
        "ticktext": [str(size) for size in sizes],
    }
    return {"xaxis": x, "yaxis": {"title": {"text": title}, "type": "log"}}
