from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import stats

durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=300)
fractions = st.sampled_from(list(stats.QUANTILES.values())) | st.fractions(Fraction(1, 1000), Fraction(999, 1000))


@given(durations, fractions)
def test_a_percentile_is_the_smallest_sample_with_enough_samples_at_or_below_it(values: list[int], q: Fraction) -> None:
    ordered = np.sort(np.array(values, np.int64))
    found = stats.percentile(ordered, q)
    at_or_below = int((ordered <= found).sum())
    assert at_or_below >= q * len(ordered)
    smaller = ordered[ordered < found]
    assert not len(smaller) or int((ordered <= smaller[-1]).sum()) < q * len(ordered)


@given(durations, st.sampled_from([0.5, 0.75, 0.875]))
def test_percentiles_agree_with_numpys_inverted_cdf(values: list[int], q: float) -> None:
    ordered = np.sort(np.array(values, np.int64))
    assert stats.percentile(ordered, Fraction(q)) == np.quantile(ordered, q, method="inverted_cdf")


@given(durations)
def test_no_percentile_is_above_the_maximum_or_below_the_minimum(values: list[int]) -> None:
    ordered = np.sort(np.array(values, np.int64))
    for q in stats.QUANTILES.values():
        assert ordered[0] <= stats.percentile(ordered, q) <= ordered[-1]


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([1, 2, 3, 4], Fraction(1, 2), 2),
        (list(range(1, 101)), Fraction(99, 100), 99),
        (list(range(1, 101)), Fraction(1, 2), 50),
        ([7], Fraction(999, 1000), 7),
        ([3, 9], Fraction(1, 2), 3),
        ([3, 9], Fraction(99, 100), 9),
        ([596], Fraction(99, 100), 596),
        ([1] * 1000 + [500], Fraction(99, 100), 1),
        ([1] * 99 + [1000], Fraction(99, 100), 1),
        ([250] * 430_000 + [190_000] * 30, Fraction(99, 100), 250),
    ],
)
def test_known_samples_have_their_known_percentiles(values: list[int], q: Fraction, expected: int) -> None:
    assert stats.percentile(np.sort(np.array(values, np.int64)), q) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        stats.rank(0, Fraction(1, 2))


def test_each_percentile_needs_ten_samples_beyond_it() -> None:
    assert {name: stats.samples_needed(q) for name, q in stats.QUANTILES.items()} == {
        "p50": 20,
        "p90": 100,
        "p95": 200,
        "p99": 1000,
        "p999": 10_000,
    }


def test_unsupported_percentiles_are_withheld_and_the_rest_is_stated() -> None:
    summary = stats.latency_summary(np.full(999, 2_000_000, np.int64))
    assert summary["p95"] == 2.0
    assert summary["p99"] is None
    assert summary["p999"] is None
    assert summary["ci95"]["p99"] is None
    assert summary["ci95"]["p50"] == [2.0, 2.0]


def test_a_summary_of_no_samples_is_all_missing_and_never_zero() -> None:
    summary = stats.latency_summary(np.empty(0, np.int64))
    assert set(map(str, summary.pop("ci95").values())) == {"None"}
    assert set(summary.values()) == {None}


def test_durations_over_a_second_and_below_a_millisecond_keep_their_length() -> None:
    summary = stats.latency_summary(np.array([1_250_000_000, 300_000], np.int64))
    assert summary["max"] == 1250.0
    assert summary["min"] == 0.3


def test_sub_millisecond_percentiles_are_exact() -> None:
    sample = (np.random.default_rng(0).lognormal(-0.5, 0.5, 100_000) * 1e6).astype(np.int64)
    summary = stats.latency_summary(sample)
    for name, q in stats.QUANTILES.items():
        assert summary[name] == np.quantile(sample, float(q), method="inverted_cdf") / 1e6


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_confidence_limits_bracket_the_percentile_they_belong_to(seed: int) -> None:
    ordered = np.sort((np.random.default_rng(seed).exponential(5, 2000) * 1e6).astype(np.int64))
    for q in (Fraction(1, 2), Fraction(99, 100)):
        low, high = stats.confidence_limits(ordered, q) or (None, None)
        assert low <= stats.percentile(ordered, q) <= high


def test_confidence_limits_cover_the_true_percentile_about_as_often_as_they_say() -> None:
    generator, covered, tries = np.random.default_rng(1), 0, 400
    truth = -np.log(0.01)  # p99 of the exponential distribution
    for _ in range(tries):
        low, high = stats.confidence_limits(np.sort((generator.exponential(1, 1500) * 1e9).astype(np.int64)), Fraction(99, 100)) or (0, 0)
        covered += low <= truth * 1e9 <= high
    assert covered / tries >= 0.92  # 0.95 less three standard errors


def test_limits_that_the_samples_do_not_bound_are_withheld() -> None:
    assert stats.confidence_limits(np.arange(100, dtype=np.int64), Fraction(99, 100)) is None
