"""What the plots draw, held against numpy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import samples, stats
from report import curves
from report.records import Window

durations = st.lists(st.integers(1, 10**12), min_size=1, max_size=300).map(lambda values: np.sort(np.array(values, np.int64)))


def rows_of(sent_ns: list[int], took_ns: list[int], status: list[int] | None = None, worker: list[int] | None = None) -> samples.Rows:
    rows = np.zeros(len(sent_ns), samples.DTYPE)
    rows["sent_ns"], rows["scheduled_ns"], rows["items"] = sent_ns, sent_ns, 1
    rows["done_ns"] = rows["sent_ns"] + np.array(took_ns, np.int64)
    rows["status"] = status if status is not None else 0
    rows["worker"] = worker if worker is not None else 0
    return rows


@given(durations)
def test_a_point_of_the_percentile_curve_is_the_percentile_of_the_stated_rule(ordered: curves.Ints) -> None:
    curve = curves.percentile_curve(ordered)
    for fraction, ms in zip(curve.fractions, curve.ms, strict=True):
        exact = Fraction(round(fraction * len(ordered)), len(ordered))
        assert ms == stats.ms(stats.percentile(ordered, exact))
        # Half a rank lower: at the rank itself, numpy's floating-point product may fall on the next sample.
        within = float(exact) - 0.5 / len(ordered)
        assert ms == stats.ms(int(np.quantile(ordered, within, method="inverted_cdf")))


@given(durations)
def test_a_percentile_curve_rises_and_never_passes_the_maximum(ordered: curves.Ints) -> None:
    curve = curves.percentile_curve(ordered)
    assert curve.ms == sorted(curve.ms)
    assert curve.fractions == sorted(set(curve.fractions))
    assert all(0 < fraction < 1 for fraction in curve.fractions)
    assert all(ms <= ordered[-1] / 1e6 for ms in curve.ms)


@given(durations)
def test_the_supported_part_of_the_curve_has_ten_samples_beyond_it(ordered: curves.Ints) -> None:
    curve = curves.percentile_curve(ordered)
    beyond = [round(len(ordered) * (1 - fraction)) for fraction in curve.fractions]
    assert all(count >= 10 for count in beyond[: curve.supported])
    assert all(count < 10 for count in beyond[curve.supported :])


@given(durations)
def test_every_sample_is_in_one_bin_of_the_histogram(ordered: curves.Ints) -> None:
    found = curves.histogram(ordered)
    assert sum(found.counts) == len(ordered)
    assert len(found.edges_ms) == len(found.counts) + 1
    assert found.edges_ms[0] <= ordered[0] / 1e6 * (1 + 1e-12)
    assert found.edges_ms[-1] >= ordered[-1] / 1e6 * (1 - 1e-12)


def test_without_samples_there_is_nothing_to_draw() -> None:
    empty = np.empty(0, np.int64)
    assert curves.percentile_curve(empty).ms == []
    assert curves.histogram(empty).counts == []
    assert curves.time_line(np.empty(0, samples.DTYPE), []).starts_s == []


def test_many_samples_give_a_bounded_number_of_points() -> None:
    ordered = np.sort(np.random.default_rng(0).lognormal(13, 1, 500_000).astype(np.int64))
    assert len(curves.percentile_curve(ordered).ms) <= curves.PERCENTILE_POINTS
    assert len(curves.histogram(ordered).counts) == curves.HISTOGRAM_BINS
    rows = rows_of(np.arange(500_000, dtype=np.int64) * 10_000, ordered.tolist())
    assert len(curves.time_line(rows, [Window(0, 0, 5 * 10**9)]).starts_s) <= curves.TIME_BUCKETS + 2


def test_only_successes_sent_inside_their_own_workers_window_are_latencies() -> None:
    rows = rows_of([5, 10, 19, 20, 1010, 15], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 14], [0, 0, 0, 0, 1, 0])
    _, inside = curves.seconds_into(rows, [Window(0, 10, 20), Window(1, 1000, 1020)])
    assert inside.tolist() == [False, True, True, False, True, True]
    assert curves.latencies_ns(rows[inside]).tolist() == [2, 3, 5]


def test_a_worker_without_a_window_is_outside() -> None:
    at, inside = curves.seconds_into(rows_of([5], [1], worker=[3]), [Window(0, 0, 10)])
    assert np.isnan(at[0])
    assert not inside[0]


def test_a_stall_every_second_shows_in_the_time_line() -> None:
    sent = np.arange(5000, dtype=np.int64) * 1_000_000
    took = np.where(sent % 10**9 == 500_000_000, 200_000_000, 1_000_000)
    line = curves.time_line(rows_of(sent.tolist(), took.tolist()), [Window(0, 10**9, 5 * 10**9)])
    stalled = [start for start, top in zip(line.starts_s, line.max_ms, strict=True) if top == 200.0]
    assert [int(start + 1) for start in stalled] == [0, 1, 2, 3, 4]
    assert line.starts_s[0] == pytest.approx(-1.0)
    assert {middle for middle in line.p50_ms if middle is not None} == {1.0}


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 10**9), st.sampled_from([0, 14, -1])), min_size=1, max_size=200))
def test_the_time_line_keeps_the_maximum_and_counts_every_failure(requests: list[tuple[int, int, int]]) -> None:
    sent, took, status = (list(column) for column in zip(*requests, strict=True))
    rows = rows_of(sent, took, status)
    line = curves.time_line(rows, [Window(0, 0, 10**10)])
    assert sum(line.failed) == sum(code != 0 for code in status)
    good = [ms for ms, code in zip(took, status, strict=True) if code == 0]
    assert max((top for top in line.max_ms if top is not None), default=None) == (max(good) / 1e6 if good else None)


@given(st.lists(st.integers(0, 5), max_size=50))
def test_rows_are_parted_by_cell_and_none_is_lost(cells: list[int]) -> None:
    rows = np.zeros(len(cells), samples.DTYPE)
    rows["cell"] = cells
    parts = list(curves.by_cell(rows))
    assert [cell for cell, _ in parts] == sorted(set(cells))
    assert all((part["cell"] == cell).all() for cell, part in parts)
    assert sum(len(part) for _, part in parts) == len(cells)
