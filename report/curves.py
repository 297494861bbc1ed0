"""What the plots need of raw samples: percentile curve, histogram and time line, each of a bounded number of points.

Plain numpy. Nothing is sampled down before it is counted: a point is an order statistic of all its samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from loadtest import samples, stats
from report.records import Window

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PERCENTILE_POINTS = 400
HISTOGRAM_BINS = 60
TIME_BUCKETS = 120
SAMPLES_BEYOND = stats.samples_needed(Fraction(1, 2)) // 2
"""How many samples must lie beyond a percentile for it to be stated: the rule of `loadtest.stats`."""


@dataclass(frozen=True)
class PercentileCurve:
    """Fractions below 1 and their latencies in ms; the first `supported` points have enough samples beyond them."""

    fractions: list[float]
    ms: list[float]
    supported: int


@dataclass(frozen=True)
class Histogram:
    """Edges in ms, shape [bins + 1], evenly spaced on a log scale, and the count of samples in each bin."""

    edges_ms: list[float]
    counts: list[int]


@dataclass(frozen=True)
class TimeLine:
    """Buckets of `bucket_s` seconds: where each begins (0 is the window's start), p50 and max in ms, requests that failed."""

    bucket_s: float
    starts_s: list[float]
    p50_ms: list[float | None]
    max_ms: list[float | None]
    failed: list[int]


def by_cell(rows: samples.Rows) -> Iterator[tuple[int, samples.Rows]]:
    """The rows of each cell, cells upwards."""
    order = np.argsort(rows["cell"], kind="stable")
    ordered = rows[order]
    ids, starts = np.unique(ordered["cell"], return_index=True)
    for index, part in zip(ids.tolist(), np.split(ordered, starts[1:]), strict=False):
        yield int(index), part


def seconds_into(rows: samples.Rows, windows: Sequence[Window]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """When each request was sent, in seconds after its own worker's window began, and whether that was in the window.

    Requests of a worker without a window are NaN and outside.
    """
    at = np.full(len(rows), np.nan)
    inside = np.zeros(len(rows), bool)
    for window in windows:
        mine = rows["worker"] == window.worker
        sent = rows["sent_ns"][mine]
        at[mine] = (sent - window.start_ns) / 1e9
        inside[mine] = (sent >= window.start_ns) & (sent < window.end_ns)
    return at, inside


def latencies_ns(rows: samples.Rows) -> Ints:
    """Response times of the successes among `rows`, in nanoseconds, sorted upwards."""
    good = rows[rows["status"] == 0]
    return np.sort(good["done_ns"] - good["scheduled_ns"])


def percentile_curve(ordered: Ints, limit: int = PERCENTILE_POINTS) -> PercentileCurve:
    """The percentile curve of sorted nanoseconds in at most `limit` points, evenly spaced in the logarithm of the share beyond.

    The sample of rank k of n stands at the fraction k/n. The largest sample has the fraction 1 and isn't a point.
    """
    count = len(ordered)
    if count < 2:
        return PercentileCurve([], [], 0)
    beyond = np.unique(np.rint(np.geomspace(1, count - 1, limit)).astype(np.int64))[::-1]
    ranks = count - beyond
    return PercentileCurve(
        fractions=(ranks / count).tolist(),
        ms=[stats.ms(int(ordered[rank - 1])) for rank in ranks],
        supported=int(np.count_nonzero(beyond >= SAMPLES_BEYOND)),
    )


def histogram(ordered: Ints, bins: int = HISTOGRAM_BINS) -> Histogram:
    """How many samples of sorted nanoseconds lie in each of `bins` bins; every sample is in one."""
    if not len(ordered):
        return Histogram([], [])
    low, high = max(int(ordered[0]), 1), max(int(ordered[-1]), 1)
    edges = np.geomspace(low * 0.999, high * 1.001, bins + 1) if high < low * 1.01 else np.geomspace(low, high, bins + 1)
    counts, _ = np.histogram(np.clip(ordered, edges[0], edges[-1]), edges)
    return Histogram([stats.ms(edge) for edge in edges.tolist()], counts.tolist())


def time_line(rows: samples.Rows, windows: Sequence[Window], limit: int = TIME_BUCKETS) -> TimeLine:
    """Latency over time of all requests, the warm-up's too (before 0), in at most about `limit` buckets.

    Buckets are wide enough to hold 20 samples on average, so that most can state their median; one with fewer has None there.
    """
    at, _ = seconds_into(rows, windows)
    known = np.isfinite(at)
    rows, at = rows[known], at[known]
    if not len(rows):
        return TimeLine(0.0, [], [], [], [])
    span = float(at.max() - at.min())
    wanted = max(1, min(limit, len(rows) // stats.samples_needed(Fraction(1, 2))))
    bucket_s = _round_up(span / wanted) if span > 0 else 1.0
    buckets = np.floor(at / bucket_s).astype(np.int64)
    good = rows["status"] == 0
    first, last = int(buckets.min()), int(buckets.max())
    failed = np.bincount(buckets[~good] - first, minlength=last - first + 1)
    middles: list[float | None] = [None] * (last - first + 1)
    tops: list[float | None] = [None] * (last - first + 1)
    took, when = (rows["done_ns"] - rows["scheduled_ns"])[good], buckets[good] - first
    order = np.lexsort((took, when))
    names, starts = np.unique(when[order], return_index=True)
    for bucket, part in zip(names.tolist(), np.split(took[order], starts[1:]), strict=False):
        summary_ready = len(part) >= stats.samples_needed(stats.QUANTILES["p50"])
        middles[bucket] = stats.ms(stats.percentile(part, stats.QUANTILES["p50"])) if summary_ready else None
        tops[bucket] = stats.ms(int(part[-1]))
    return TimeLine(bucket_s, [(first + index) * bucket_s for index in range(len(tops))], middles, tops, failed.tolist())


def _round_up(value: float) -> float:
    scale = 10.0 ** np.floor(np.log10(value))
    return float(next(step * scale for step in (1, 2, 5, 10) if step * scale >= value * (1 - 1e-9)))
