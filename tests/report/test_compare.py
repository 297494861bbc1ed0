"""Comparing runs: what differs comes first, unlike cells are refused, and one window each proves nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report import compare_text, run
from report.compare import NO_DIFFERENCE, compare, judge
from report.errors import ReportError
from report.records import Cell, Run
from tests.report import recorded


@pytest.fixture(scope="module")
def base(bench: Path) -> Run:
    return run.load(bench)


def with_cells(source: Run, **changes: Any) -> Run:
    return replace(source, cells=tuple(replace(cell, **changes) for cell in source.cells))


def first_pair(*runs: Run) -> Any:
    return compare(*runs).pairs[0].cells[0]


def test_a_run_against_itself_shows_no_difference(base: Run) -> None:
    found = compare(base, base).pairs[0]
    assert found.differences == ()
    judged = [metric for cell in found.cells for metric in cell.metrics]
    assert {metric.ratio for metric in judged} <= {1.0, None}
    assert {metric.verdict for metric in judged} <= {NO_DIFFERENCE, None}


def test_cells_are_matched_by_model_batch_size_and_load(base: Run) -> None:
    turned = replace(base, cells=base.cells[::-1])
    assert [cell.refused for cell in compare(base, turned).pairs[0].cells] == [cell.refused for cell in compare(base, base).pairs[0].cells]


def test_a_slower_run_is_told_by_intervals_that_dont_overlap_and_without_a_proof(base: Run, tmp_path: Path) -> None:
    quick = run.load(recorded.of_durations(tmp_path / "a", [1.0 + i / 10_000 for i in range(2000)]))
    slow = run.load(recorded.of_durations(tmp_path / "b", [1.5 + i / 10_000 for i in range(2000)]))
    p50, p99, rate = first_pair(quick, slow).metrics
    assert p50.verdict == p99.verdict == "A lower (one window each: not a proof)"
    assert (p50.difference, p50.ratio) == (pytest.approx(0.5), pytest.approx(1.5998 / 1.0999, rel=1e-3))
    assert first_pair(slow, quick).metrics[0].verdict == "B lower (one window each: not a proof)"
    assert rate.verdict is None


limits = st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(lambda pair: (min(pair), max(pair)))


@given(limits, limits)
def test_the_verdict_turns_round_with_the_runs_and_needs_intervals_apart(left: tuple[float, float], right: tuple[float, float]) -> None:
    verdict = judge(left, right)
    assert judge(right, left, ("B", "A")) == verdict
    overlap = max(left[0], right[0]) <= min(left[1], right[1])
    assert (verdict == NO_DIFFERENCE) == overlap


@pytest.mark.parametrize(("left", "right"), [(None, (1.0, 2.0)), ((1.0, 2.0), None), (None, None)])
def test_without_an_interval_no_difference_is_shown(left: Any, right: Any) -> None:
    assert judge(left, right) == NO_DIFFERENCE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"request_bytes": 500.0}, "not comparable: a request has 3,184 bytes in A and 500 in B"),
        ({"request_bytes": None}, "not comparable: B doesn't record the bytes of a request"),
        ({"valid": False, "reasons": ("server gone",)}, "not comparable: B's cell isn't valid (server gone)"),
        ({"batch_size": 2}, "not comparable: only A has this cell"),
        ({"mode": "open"}, "not comparable: only A has this cell"),
    ],
)
def test_unlike_cells_are_refused_with_the_reason(base: Run, change: dict[str, Any], says: str) -> None:
    found = first_pair(base, with_cells(base, **change))
    assert found.refused == says
    assert found.metrics == ()


def test_an_unknown_engine_is_not_compared_with_a_known_one(base: Run) -> None:
    unknown = replace(base, server=replace(base.server, engine="unknown"))
    assert first_pair(base, unknown).refused == "not comparable: the engine of one run is unknown"
    assert first_pair(unknown, unknown).refused is None


def test_two_engines_are_named_before_any_number(base: Run) -> None:
    served = replace(base, server=replace(base.server, engine="tensorflow-serving", version="2.20.0"))
    text = compare_text.as_text(compare(base, served), 160)
    assert text.index("engine: A embedded server (not TensorFlow Serving); B TensorFlow Serving 2.20.0") < text.index("p50, ms")


def test_repeated_cells_are_refused_rather_than_picked_from(base: Run) -> None:
    doubled = replace(base, cells=(*base.cells, base.cells[0]))
    assert first_pair(base, doubled).refused == "not comparable: B has 2 cells of this kind, and which to take isn't known"


CHANGES: list[tuple[str, Any]] = [
    ("server version", lambda r: replace(r, server=replace(r.server, version="9"))),
    ("server device", lambda r: replace(r, server=replace(r.server, device="gpu"))),
    ("server threads", lambda r: replace(r, server=replace(r.server, threads={"session": 1}))),
    ("server flags", lambda r: replace(r, server=replace(r.server, flags=["--enable_batching"]))),
    ("CPU model", lambda r: replace(r, host=replace(r.host, cpu_model="Other"))),
    ("CPU count", lambda r: replace(r, host=replace(r.host, cpus=64.0))),
    ("channel", lambda r: replace(r, client=replace(r.client, channel="grpcio"))),
    ("load processes", lambda r: replace(r, client=replace(r.client, processes=9))),
    ("think time", lambda r: replace(r, client=replace(r.client, think_time_s=0.1))),
    ("client's CPUs", lambda r: replace(r, client=replace(r.client, cpus=(1,)))),
    ("request bytes", lambda r: with_cells(r, request_bytes=1.0)),
    ("warm-up", lambda r: with_cells(r, warmup_s=9.0)),
    ("window", lambda r: with_cells(r, window_s=9.0)),
    ("model version", lambda r: with_cells(r, model_version=7)),
    ("complete", lambda r: replace(r, complete=False)),
    ("training record", lambda r: replace(r, raw={"training": {"cnn2": {"steps": 1}}})),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_condition_that_differs_is_called_out_by_name(base: Run, name: str, change: Any) -> None:
    assert name in [fact for fact, _, _ in compare(base, change(base)).pairs[0].differences]


def test_ports_and_the_ready_file_are_no_difference(base: Run) -> None:
    left = replace(base, server=replace(base.server, flags=["--port=1", "--ready-file=/a", "--x=1"]))
    right = replace(base, server=replace(base.server, flags=["--port=2", "--ready-file=/b", "--x=1"]))
    assert compare(left, right).pairs[0].differences == ()


def test_three_runs_are_each_set_against_the_first(base: Run) -> None:
    found = compare(base, base, base)
    assert [(pair.base, pair.other) for pair in found.pairs] == [("A", "B"), ("A", "C")]


def test_one_run_is_no_comparison(base: Run) -> None:
    with pytest.raises(ReportError, match="two or more run folders"):
        compare(base)


def test_json_and_markdown_hold_the_same_verdicts(base: Run) -> None:
    hostile = replace(base, label="a|b <i>")
    found = compare(hostile, base)
    decoded = json.loads(compare_text.as_json(found))
    assert decoded["pairs"][0]["cells"][0]["metrics"][0]["verdict"] == NO_DIFFERENCE
    markdown = compare_text.as_markdown(found)
    assert "a\\|b \\<i>" in markdown
    table = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in table} == {8}
    assert "not comparable: A's cell isn't valid" in markdown


def test_every_format_says_that_one_window_proves_nothing(base: Run) -> None:
    found = compare(base, base)
    assert "they don't prove that a repeat would be" in compare_text.as_text(found, 200)
    assert "they don't prove that a repeat would be" in compare_text.as_markdown(found)


def test_a_cell_without_p99_shows_a_dash_and_no_verdict(base: Run) -> None:
    few: Cell = next(cell for cell in base.cells if cell.response_ms.p99 is None and cell.valid)
    alone = replace(base, cells=(few,))
    p99 = first_pair(alone, alone).metrics[1]
    assert (p99.base, p99.difference, p99.ratio, p99.verdict) == (None, None, None, None)
