"""The report: one HTML file with the plotting library inside, which asks the network for nothing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from loadtest import samples
from report import answers, cell_figures, curves, environment, figures, training, words
from report.columns import Column, columns, withheld
from report.records import Cell, Run

_POINTS_IN_ALL = 40_000
"""Points of all percentile curves together: 200 cells then stay below 8 MB, of which the plotting library has 4.8."""


@dataclass(frozen=True)
class Detail:
    """A cell's own plots and a line of its numbers, for the part of the page that shows one cell."""

    name: str
    valid: bool
    line: str
    remarks: list[str]
    plots: dict[str, figures.Figure]


def render(run: Run, rows: samples.Rows) -> str:
    """The report of a run and its samples as HTML. The same input gives the same text."""
    import plotly.offline  # here, because nothing else of the package needs it

    details, problems = _details(run, rows)
    data = {"figures": _overview(run), "cells": [vars(detail) for detail in details]}
    loader = jinja2.PackageLoader("report")
    page = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    found = answers.answer(run)
    return page.get_template("report.html.j2").render(
        run=run,
        title=words.title(run),
        engine=words.engine(run.server),
        conditions=environment.conditions(run),
        remarks=[*run.notes, *problems],
        answers=found,
        comparison=answers.comparison(found),
        columns=columns(run),
        cells=_table(run, columns(run)),
        details=details,
        noted=[(cell, words.cell_name(cell)) for cell in run.cells if cell.notes],
        training=training.rows(run),
        training_note=training.note(),
        environment=environment.tables(run),
        sharing=environment.sharing(run),
        command=shlex.join(run.command),
        data=data,
        # The library and the page's own files are part of the package, not of the run: they go in as they are.
        plotly=Markup(plotly.offline.get_plotlyjs()),  # noqa: S704
        style=Markup(_static("report.css")),  # noqa: S704
        script=Markup(_static("report.js")),  # noqa: S704
    )


def _static(name: str) -> str:
    return (resources.files("report") / "static" / name).read_text(encoding="utf-8")


def _overview(run: Run) -> dict[str, figures.Figure]:
    found = {
        "latency": figures.latency_by_batch(run),
        "throughput": figures.throughput_by_batch(run),
        "accuracy": figures.training_curve(run, "accuracy"),
        "loss": figures.training_curve(run, "loss"),
    }
    return {name: figure for name, figure in found.items() if figure["data"]}


def _table(run: Run, shown: list[Column]) -> list[dict[str, Any]]:
    order = answers.models(run)
    cells = sorted(run.cells, key=lambda cell: (order.index(cell.model), words.load_key(cell), cell.batch_size, cell.id))
    return [{"cell": cell, "fields": [(column, column.show(cell)) for column in shown]} for cell in cells]


def _details(run: Run, rows: samples.Rows) -> tuple[list[Detail], list[str]]:
    parts = dict(curves.by_cell(rows))
    empty = np.empty(0, samples.DTYPE)
    points = max(50, min(curves.PERCENTILE_POINTS, _POINTS_IN_ALL // max(len(run.cells), 1)))
    details, problems = [], []
    for cell in run.cells:
        mine = parts.get(cell.id, empty)
        _, inside = curves.seconds_into(mine, cell.windows)
        counted = int(np.count_nonzero(inside))
        if counted != cell.sent:
            problems.append(
                f"{words.cell_name(cell)}: run.json counts {cell.sent:,} requests in the window, samples.parquet holds {counted:,}."
            )
        ordered = curves.latencies_ns(mine[inside])
        plots = {
            "percentiles": cell_figures.percentile_figure(curves.percentile_curve(ordered, points)),
            "histogram": cell_figures.histogram_figure(curves.histogram(ordered)),
            "time": cell_figures.time_figure(curves.time_line(mine, cell.windows), cell.window_s),
        }
        details.append(Detail(words.cell_name(cell), cell.valid, _line(cell), _remarks(cell), plots))
    return details, problems


def _line(cell: Cell) -> str:
    times = cell.response_ms
    shown = [
        f"{name} {words.number(value)}{' ms' if value is not None else ''}"
        for name, value in (
            ("p50", times.p50),
            ("p90", times.p90),
            ("p95", times.p95),
            ("p99", times.p99),
            ("p99.9", times.p999),
            ("max", times.max),
        )
    ]
    return f"{cell.ok:,} ok, {cell.failed:,} failed, {cell.abandoned:,} abandoned · " + " · ".join(shown)


def _remarks(cell: Cell) -> list[str]:
    found = [f"not valid: {reason}" for reason in cell.reasons] + list(cell.notes)
    if not cell.notes:
        found += [withheld(cell, name) for name in ("p50", "p90", "p99") if getattr(cell.response_ms, name) is None][:1]
    server = cell.server_ms.request_mean if cell.server_ms else None
    if cell.mode == "open" and server and cell.response_ms.p50 and cell.response_ms.p50 > 2 * server:
        found.append(
            f"p50 of the response time is {words.number(cell.response_ms.p50)} ms and the server's own mean {words.number(server)} ms: "
            "the response time counts from the schedule, so it holds the time that a request waited before the server saw it."
        )
    return found
