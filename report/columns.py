"""The columns of the table of cells: what each shows, sorts by, and says where it withholds a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadtest import stats
from report import words
from report.records import Cell, Latency, Run


@dataclass(frozen=True)
class Shown:
    """A table field: its text, the number it sorts by (None sorts last), a smaller second line, and a hint."""

    text: str
    order: float | str | None
    below: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Column:
    """A column: its title with unit, a hint, whether it holds numbers, and what it shows of a cell."""

    title: str
    hint: str
    numeric: bool
    show: Callable[[Cell], Shown]


def columns(run: Run) -> list[Column]:
    """The columns that suit the run: those of the open loop and of the server only where some cell has them."""
    opened = any(cell.mode == "open" for cell in run.cells)
    served = any(cell.server_ms for cell in run.cells)
    versions = len({(cell.model, cell.model_version) for cell in run.cells}) > len({cell.model for cell in run.cells})
    found: list[Column | None] = [
        Column("model", "name of the model", False, lambda cell: Shown(cell.model, cell.model)),
        Column("version", "version of the SavedModel", True, lambda cell: _plain(cell.model_version)) if versions else None,
        Column("batch size", "images in one request", True, lambda cell: _plain(cell.batch_size)),
        Column(
            "loop", "closed: a user sends when its reply is in; open: sent on schedule", False, lambda cell: Shown(cell.mode, cell.mode)
        ),
        Column("concurrency", "requests in flight", True, lambda cell: _plain(cell.concurrency)),
        Column("offered /s", "arrival rate, requests per second", True, lambda cell: _number(cell.offered_per_s)) if opened else None,
        Column("requests/s", "successes per second of the window", True, lambda cell: _number(cell.requests_per_s)),
        Column("images/s", "images in successes per second of the window", True, lambda cell: _number(cell.images_per_s)),
        Column("p50 ms", "response time, 95 % confidence below", True, lambda cell: _percentile(cell, "p50")),
        Column("p90 ms", "response time", True, lambda cell: _percentile(cell, "p90")),
        Column("p99 ms", "response time, 95 % confidence below", True, lambda cell: _percentile(cell, "p99")),
        Column("sent", "requests sent inside the window: ok + failed + abandoned", True, lambda cell: _plain(cell.sent)),
        Column("ok", "usable replies", True, lambda cell: _plain(cell.ok)),
        Column("failed", "replies with an error, or not usable", True, _failed),
        Column("abandoned", "no reply by the end of the drain", True, lambda cell: _plain(cell.abandoned)),
        Column("mean ms", "response time", True, lambda cell: _number(cell.response_ms.mean)),
        Column("max ms", "response time", True, lambda cell: _number(cell.response_ms.max)),
        Column("service p50 ms", "from the send, not from the schedule", True, lambda cell: _number(cell.service_ms.p50))
        if opened
        else None,
        Column("server ms", "mean of the request on the server, by its own count", True, _server_mean) if served else None,
        Column("accuracy", "images labelled right, over successes", True, _accuracy),
        Column("request bytes", "one request's size", True, lambda cell: _plain(cell.request_bytes)),
        Column("client CPU", "busiest load process, share of one CPU", True, lambda cell: _share(cell.client_cpu)),
    ]
    return [column for column in found if column]


def withheld(cell: Cell, name: str) -> str:
    """Why the percentile `name` of the cell is missing, in words."""
    if cell.ok == 0:
        return "no request succeeded"
    need = stats.samples_needed(stats.QUANTILES[name])
    return f"{name} needs {need:,} successes, this cell has {cell.ok:,}" if cell.ok < need else "the run doesn't give it"


def failure_share(cell: Cell) -> float | None:
    """Failed requests divided by requests sent, or None without any."""
    return (cell.failed + cell.abandoned) / cell.sent if cell.sent else None


def errors_text(cell: Cell) -> str:
    """The codes of the failures with their counts: "UNAVAILABLE 12"."""
    return ", ".join(f"{code} {count:,}" for code, count in sorted(cell.errors.items()))


def _plain(value: float | str | None) -> Shown:
    if value is None:
        return Shown(words.DASH, None, hint="not recorded")
    return Shown(value, value) if isinstance(value, str) else Shown(f"{value:,.0f}" if value == int(value) else words.number(value), value)


def _number(value: float | None) -> Shown:
    return Shown(words.number(value), value, hint="" if value is not None else "no request succeeded, or not recorded")


def _share(value: float | None) -> Shown:
    return Shown(words.percent(value, 0), value, hint="" if value is not None else "not recorded")


def _accuracy(cell: Cell) -> Shown:
    return Shown(
        words.percent(cell.accuracy), cell.accuracy, hint="" if cell.accuracy is not None else "no request succeeded, or not recorded"
    )


def _failed(cell: Cell) -> Shown:
    share = failure_share(cell) if cell.failed else None
    return Shown(
        f"{cell.failed:,}", cell.failed, below=errors_text(cell), hint=f"{words.percent(share)} of what was sent failed" if share else ""
    )


def _percentile(cell: Cell, name: str) -> Shown:
    latency: Latency = cell.response_ms
    value = getattr(latency, name)
    if value is None:
        return Shown(words.DASH, None, hint=withheld(cell, name))
    limits = latency.interval(name)
    return Shown(words.number(value), value, below=f"{words.number(limits[0])} to {words.number(limits[1])}" if limits else "")


def _server_mean(cell: Cell) -> Shown:
    if cell.server_ms is None or cell.server_ms.request_mean is None:
        return Shown(words.DASH, None, hint="the server gave no times")
    runtime = cell.server_ms.runtime_mean
    return Shown(
        words.number(cell.server_ms.request_mean),
        cell.server_ms.request_mean,
        below=f"runtime {words.number(runtime)}" if runtime is not None else "",
    )
