"""The plots of one cell as plotly figures in plain data, from the curves of its samples. Colours as in `report.figures`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from report import curves, words
from report.figures import Figure, compact


def percentile_figure(curve: curves.PercentileCurve) -> Figure:
    """Latency against percentile, the axis stretched towards the tail; dotted where fewer samples lie beyond than the rule asks."""
    x = [compact(1 / (1 - fraction)) for fraction in curve.fractions]
    shown = [_percent_text(fraction) for fraction in curve.fractions]
    y = [compact(value) for value in curve.ms]
    cut = curve.supported
    parts = [("lines", "solid", slice(0, cut), "", True), ("lines", "dot", slice(max(cut - 1, 0), None), ", few samples beyond", False)]
    traces = [
        {
            "type": "scatter",
            "mode": mode,
            "name": f"percentiles{note}",
            "x": x[part],
            "y": y[part],
            "customdata": shown[part],
            "hovertemplate": f"p%{{customdata}}: %{{y:,.4~g}} ms{note}<extra></extra>",
            "line": {"dash": dash, "width": 2 if solid else 1.5},
            "meta": {"series": 0},
            "showlegend": False,
        }
        for mode, dash, part, note, solid in parts
        if len(x[part]) > 1
    ]
    top = math.ceil(math.log10(x[-1])) if x else 2
    ticks = [1, 2, 4, *(10**power for power in range(1, max(top, 2) + 1))]
    axis = {"type": "log", "title": {"text": "percentile"}, "tickvals": ticks, "ticktext": [_percent_text(1 - 1 / tick) for tick in ticks]}
    return {"data": traces, "layout": {"xaxis": axis, "yaxis": {"title": {"text": "response time, ms"}, "type": "log"}}}


def histogram_figure(counted: curves.Histogram) -> Figure:
    """The share of requests per bin of response time, as a stepped area on a logarithmic time axis."""
    total = sum(counted.counts)
    shares = [compact(100 * count / total) for count in counted.counts]
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "requests",
        "x": [compact(edge) for edge in counted.edges_ms],
        "y": [*shares, shares[-1]] if shares else [],
        "line": {"shape": "hv", "width": 1.5},
        "fill": "tozeroy",
        "hovertemplate": "from %{x:,.4~g} ms: %{y:.3~g} % of the requests<extra></extra>",
        "meta": {"series": 0},
        "showlegend": False,
    }
    layout = {
        "xaxis": {"type": "log", "title": {"text": "response time, ms"}},
        "yaxis": {"title": {"text": "requests, %"}, "rangemode": "tozero"},
    }
    return {"data": [trace] if total else [], "layout": layout}


def time_figure(line: curves.TimeLine, window_s: float | None) -> Figure:
    """Latency over the seconds of a cell: p50 and max per bucket, failures as bars, warm-up and drain shaded."""
    middle = [compact(start + line.bucket_s / 2) for start in line.starts_s]
    traces: list[dict[str, Any]] = [
        _over_time("max", middle, line.max_ms, {"dash": "dot", "width": 1.2}, 0.8),
        _over_time("p50", middle, line.p50_ms, {"width": 2}, 1.0),
    ]
    layout: dict[str, Any] = {
        "xaxis": {
            "title": {"text": f"seconds after the window began (buckets of {words.number(line.bucket_s * 1000, 3)} ms)"},
            "zeroline": False,
        },
        "yaxis": {"title": {"text": "response time, ms"}, "type": "log"},
        "shapes": [],
    }
    if any(line.failed):
        bars = {
            "type": "bar",
            "name": "failed requests",
            "x": middle,
            "y": line.failed,
            "yaxis": "y2",
            "opacity": 0.5,
            "meta": {"series": -1},
        }
        traces.append({**bars, "hovertemplate": "%{y:,} failed<extra></extra>"})
        layout["yaxis2"] = {
            "title": {"text": "failed requests"},
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "rangemode": "tozero",
        }
    if line.starts_s:
        low, high = line.starts_s[0], line.starts_s[-1] + line.bucket_s
        layout["xaxis"]["range"] = [low, high]
        spans = [("warm-up", low, 0.0)] + ([("drain", window_s, high)] if window_s is not None else [])
        layout["shapes"] = [_shade(name, start, end) for name, start, end in spans if end - start > line.bucket_s / 2]
    return {"data": traces, "layout": layout}


def _over_time(name: str, x: list[float], y: Sequence[float | None], line: dict[str, Any], opacity: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= 40 else "lines",
        "name": name,
        "x": x,
        "y": [None if value is None else compact(value) for value in y],
        "line": line,
        "marker": {"size": 4},
        "opacity": opacity,
        "hovertemplate": f"{name} %{{y:,.4~g}} ms at %{{x:.4~g}} s<extra></extra>",
        "meta": {"series": 0},
    }


def _shade(name: str, start: float, end: float) -> dict[str, Any]:
    label = {"text": name, "textposition": "top left", "font": {"size": 11}}
    return {
        "type": "rect",
        "name": name,
        "xref": "x",
        "yref": "paper",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "label": label,
    }


def _percent_text(fraction: float) -> str:
    return f"{100 * fraction:.6g}"
