"""The statistics of raw samples: one percentile rule, and when a percentile may be stated.

Plain functions of numpy arrays. Nothing here knows of cells, files or servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

Samples = npt.NDArray[np.int64]

QUANTILES: Mapping[str, Fraction] = {
    "p50": Fraction(50, 100),
    "p90": Fraction(90, 100),
    "p95": Fraction(95, 100),
    "p99": Fraction(99, 100),
    "p999": Fraction(999, 1000),
}
"""Name to fraction, exact, so that the rank has no rounding error."""

CONFIDENCE = 0.95
_SAMPLES_BEYOND = 10


def samples_needed(q: Fraction) -> int:
    """How many samples support the quantile `q`: ten beyond it on its thinner side.

    That is 20 for p50, 100 for p90, 1,000 for p99 and 10,000 for p99.9.
    """
    return int(-(-_SAMPLES_BEYOND // min(q, 1 - q)))


def rank(count: int, q: Fraction) -> int:
    """Zero-based index of the quantile `q` in `count` sorted samples: the smallest with at least `q` at or below it.

    Raises ValueError without samples.
    """
    if count < 1:
        raise ValueError("a quantile needs at least one sample")
    return max(0, -(-count * q.numerator // q.denominator) - 1)


def percentile(ordered: Samples, q: Fraction) -> int:
    """The quantile `q` of samples sorted upwards, shape [n], n ≥ 1: always one of the samples, so never above the maximum."""
    return int(ordered[rank(len(ordered), q)])


def confidence_limits(ordered: Samples, q: Fraction, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Distribution-free confidence limits of the quantile `q`, as two of the samples; None where too few bound it.

    The number of samples below the true quantile is binomial, so two order statistics bracket it whatever the
    distribution is (David and Nagaraja, Order Statistics, section 7.1). Samples are taken as independent.
    """
    count = len(ordered)
    tail = (1 - confidence) / 2
    low = int(scipy_stats.binom.ppf(tail, count, float(q))) - 1
    high = int(scipy_stats.binom.ppf(1 - tail, count, float(q)))
    if low < 0 or high >= count:
        return None
    return int(ordered[low]), int(ordered[high])


def ms(nanoseconds: float) -> float:
    """Nanoseconds as milliseconds, unrounded: rounding belongs to printing."""
    return nanoseconds / 1e6


def latency_summary(durations_ns: Samples) -> dict[str, object]:
    """Mean, extremes, percentiles and confidence limits in milliseconds of durations in nanoseconds, shape [n], any order.

    A value that the samples don't support is None (see `samples_needed`); without samples all are.
    """
    ordered = np.sort(durations_ns)
    count = len(ordered)
    supported = {name: count >= samples_needed(q) for name, q in QUANTILES.items()}
    limits = {name: confidence_limits(ordered, QUANTILES[name]) if supported[name] else None for name in ("p50", "p99")}
    return {
        "mean": ms(float(ordered.mean())) if count else None,
        "min": ms(int(ordered[0])) if count else None,
        "max": ms(int(ordered[-1])) if count else None,
        **{name: ms(percentile(ordered, q)) if supported[name] else None for name, q in QUANTILES.items()},
        "ci95": {name: [ms(pair[0]), ms(pair[1])] if pair else None for name, pair in limits.items()},
    }
