"""Runs compared cell by cell: what differs between the runs first, then numbers, and no claim that one window can't carry.

A run is measured once per cell here, so a verdict never says more than which window was lower.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from report import environment, words
from report.errors import ReportError
from report.records import Cell, Run

NO_DIFFERENCE = "no difference shown"
ONE_WINDOW = "one window each: not a proof"
_WHERE_NOT_HOW = ("--port", "--rest_api_port", "--ready-file", "--stop-with-stdin")
"""Flags that differ from start to start and change no number."""
_METRICS = {"p50": ("p50", "ms"), "p99": ("p99", "ms"), "requests_per_s": ("requests/s", "1/s")}


@dataclass(frozen=True)
class Metric:
    """One number of a cell in both runs. `ratio` is other ÷ base; `verdict` is None where no interval can be had."""

    name: str
    unit: str
    base: float | None
    other: float | None
    difference: float | None
    ratio: float | None
    verdict: str | None


@dataclass(frozen=True)
class CellPair:
    """The same cell of two runs; `refused` says why it isn't compared, and then there are no metrics."""

    cell: str
    refused: str | None
    metrics: tuple[Metric, ...]


@dataclass(frozen=True)
class RunPair:
    """A run set against the base: what differs (name, base, other) and the cells."""

    base: str
    other: str
    differences: tuple[tuple[str, str, str], ...]
    cells: tuple[CellPair, ...]


@dataclass(frozen=True)
class Comparison:
    """The runs by letter, with a line each on what they are, and each later run against the first."""

    runs: tuple[tuple[str, str], ...]
    pairs: tuple[RunPair, ...]


def compare(*runs: Run) -> Comparison:
    """Sets every run after the first against the first. Raises ReportError with fewer than two runs."""
    if len(runs) < 2:
        raise ReportError("a comparison needs two runs: name two or more run folders")
    letters = [chr(ord("A") + index) if index < 26 else f"R{index}" for index in range(len(runs))]
    described = tuple((letter, _describe(run)) for letter, run in zip(letters, runs, strict=True))
    pairs = [_pair(letters[0], runs[0], letter, run) for letter, run in zip(letters[1:], runs[1:], strict=True)]
    return Comparison(described, tuple(pairs))


def differences(base: Run, other: Run) -> list[tuple[str, str, str]]:
    """What differs between two runs besides their numbers, as (name, base, other) in words."""
    found = [(name, value(base), value(other)) for name, value in _FACTS.items()]
    return [(name, left, right) for name, left, right in found if left != right]


def _describe(run: Run) -> str:
    cut = "" if run.complete else ", INCOMPLETE"
    return f"{words.title(run)} ({run.id}): {words.engine(run.server)}{cut}"


def _pair(base_name: str, base: Run, other_name: str, other: Run) -> RunPair:
    left, right = _by_key(base), _by_key(other)
    refused = _engines_refused(base, other)
    cells = []
    for key in dict.fromkeys([*left, *right]):
        name = words.cell_name((left.get(key) or right[key])[0])
        reason = _missing(left.get(key), right.get(key), base_name, other_name) or refused
        if reason is None:
            reason = _cells_refused(left[key][0], right[key][0], base_name, other_name)
        metrics = () if reason else tuple(_metric(kind, left[key][0], right[key][0], (base_name, other_name)) for kind in _METRICS)
        cells.append(CellPair(name, reason and f"not comparable: {reason}", metrics))
    return RunPair(base_name, other_name, tuple(differences(base, other)), tuple(cells))


def _by_key(run: Run) -> dict[tuple[object, ...], list[Cell]]:
    found: dict[tuple[object, ...], list[Cell]] = {}
    for cell in run.cells:
        found.setdefault((cell.model, cell.batch_size, cell.mode, cell.concurrency, cell.offered_per_s), []).append(cell)
    return found


def _missing(left: list[Cell] | None, right: list[Cell] | None, base: str, other: str) -> str | None:
    if not left or not right:
        return f"only {base if left else other} has this cell"
    for name, cells in ((base, left), (other, right)):
        if len(cells) > 1:
            return f"{name} has {len(cells)} cells of this kind, and which to take isn't known"
    return None


def _engines_refused(base: Run, other: Run) -> str | None:
    engines = {base.server.engine, other.server.engine}
    # An engine against an unnamed one would pass for a fair pair; two unnamed ones are the user's own server twice.
    return "the engine of one run is unknown" if "unknown" in engines and len(engines) > 1 else None


def _cells_refused(left: Cell, right: Cell, base: str, other: str) -> str | None:
    for name, cell in ((base, left), (other, right)):
        if not cell.valid:
            return f"{name}'s cell isn't valid ({'; '.join(cell.reasons) or 'no reason given'})"
        if cell.request_bytes is None:
            return f"{name} doesn't record the bytes of a request"
    if left.request_bytes != right.request_bytes:
        return f"a request has {left.request_bytes:,.10g} bytes in {base} and {right.request_bytes:,.10g} in {other}"
    return None


def _metric(kind: str, left: Cell, right: Cell, names: tuple[str, str]) -> Metric:
    title, unit = _METRICS[kind]
    if kind == "requests_per_s":
        return _numbers(title, unit, left.requests_per_s, right.requests_per_s, None)
    values = getattr(left.response_ms, kind), getattr(right.response_ms, kind)
    verdict = judge(left.response_ms.interval(kind), right.response_ms.interval(kind), names) if None not in values else None
    return _numbers(title, unit, *values, verdict)


def _numbers(title: str, unit: str, left: float | None, right: float | None, verdict: str | None) -> Metric:
    if left is None or right is None:
        return Metric(title, unit, left, right, None, None, None)
    return Metric(title, unit, left, right, right - left, right / left if left else None, verdict)


def judge(left: tuple[float, float] | None, right: tuple[float, float] | None, names: tuple[str, str] = ("A", "B")) -> str:
    """The verdict on two 95 % intervals: which lies lower as a whole, or that no difference is shown (overlap, or one missing)."""
    if left is None or right is None:
        return NO_DIFFERENCE
    if left[1] < right[0]:
        return f"{names[0]} lower ({ONE_WINDOW})"
    if right[1] < left[0]:
        return f"{names[1]} lower ({ONE_WINDOW})"
    return NO_DIFFERENCE


def record_hash(run: Run, model: str) -> str:
    """The first twelve digits of the SHA-256 of a model's training record, key order aside."""
    records = run.raw.get("training")
    record = records.get(model) if isinstance(records, dict) else None
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12] if record else "none"


def _each_model(value: Callable[[Run, str], str]) -> Callable[[Run], str]:
    return lambda run: ", ".join(f"{model} {value(run, model)}" for model in sorted({cell.model for cell in run.cells}))


def _versions(run: Run, model: str) -> str:
    return "/".join(sorted({str(cell.model_version) for cell in run.cells if cell.model == model}))


def _seconds(name: str) -> Callable[[Run], str]:
    def found(run: Run) -> str:
        values = {getattr(cell, name) for cell in run.cells} - {None}
        # A tenth of a second: windows end with the loop that notices it, never on the dot.
        return "/".join(sorted({f"{value:.1f} s" for value in values}))

    return found


def _sizes(run: Run) -> str:
    sizes = {(cell.batch_size, cell.request_bytes) for cell in run.cells}
    ordered = sorted(sizes, key=lambda pair: (pair[0], pair[1] or 0))
    return ", ".join(f"batch size {batch}: {words.DASH if size is None else format(size, ',.10g')}" for batch, size in ordered)


def _flags(run: Run) -> list[str]:
    flags = run.server.flags
    given = [str(flag) for flag in flags] if isinstance(flags, list) else [str(flags)] if flags else []
    return [flag for flag in given if not flag.startswith(_WHERE_NOT_HOW)]


def _named(row: str, table: int) -> Callable[[Run], str]:
    return lambda run: dict(environment.tables(run)[table][1]).get(row, "not recorded")


_FACTS: dict[str, Callable[[Run], str]] = {
    "engine": lambda run: words.engine(run.server),
    "complete": lambda run: "yes" if run.complete else "no, cut short",
    **{f"server {row}": _named(row, 0) for row in ("version", "image", "image digest", "device", "threads", "dynamic batching")},
    "server flags": lambda run: " ".join(_flags(run)) or "not recorded",
    "server's CPUs": _named("may run on CPUs", 0),
    "CPU model": _named("CPU", 2),
    "CPU count": _named("usable CPUs", 2),
    "GPUs": _named("GPUs", 2),
    "kernel": _named("kernel", 2),
    **{row: _named(row, 1) for row in ("channel", "load processes", "think time", "deadline", "ran at")},
    "client's CPUs": _named("may run on CPUs", 1),
    **{name: _named(name, 3) for name in ("python", "tensorflow", "grpcio", "timetoscore")},
    "git commit": _named("git commit", 3),
    "request bytes": _sizes,
    "warm-up": _seconds("warmup_s"),
    "window": _seconds("window_s"),
    "model version": _each_model(_versions),
    "training record": _each_model(record_hash),
}
