from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import samples
from loadtest.cells import Cell, Settings
from loadtest.flat import COLUMNS, row
from loadtest.recorder import Part, Recorder
from loadtest.summary import summarise

MS = 1_000_000
SECOND = 1_000 * MS
CELL = Cell(0, "cnn2", 1, 1)
DEADLINE, UNAVAILABLE = 4, 14


def _rows(*groups: tuple[int, float, int], items: int = 1, worker: int = 0, start: int = 0, every: int = MS) -> samples.Rows:
    """Groups of (count, latency in ms, status), sent one after the other from `start`, `every` ns apart."""
    sent, records = start, []
    for count, latency, status in groups:
        for _ in range(count):
            done = samples.NOT_DONE if status == samples.ABANDONED else sent + int(latency * MS)
            records.append((0, worker, sent, sent, done, status, items, items if status == 0 else 0))
            sent += every
    return samples.rows(records)


def _part(worker: int = 0, start: int = 0, end: int = 10 * SECOND, users: int = 1, **more: object) -> Part:
    return Part(worker, start, end, users, **{"client_cpu": 0.1, "load_on_client": 0.1, "versions": {1: 1}, **more})


def _cell(rows: samples.Rows, *parts: Part, cell: Cell = CELL, accuracy: float | None = None) -> dict:
    return summarise(cell, Settings(), rows, parts or [_part()], "127.0.0.1:8500", 3200, accuracy)


def test_only_requests_sent_inside_the_window_count_wherever_they_end() -> None:
    early = _rows((5, 1, 0), start=SECOND - 5 * MS)
    inside = _rows((10, 3, 0), start=SECOND)
    crossing = _rows((3, 9_000, 0), start=2 * SECOND - 3 * MS)
    late = _rows((7, 1, 0), start=2 * SECOND)
    cell = _cell(np.concatenate([early, inside, crossing, late]), _part(start=SECOND, end=2 * SECOND))
    assert (cell["sent"], cell["ok"]) == (13, 13)
    assert cell["service_ms"]["max"] == 9000
    assert cell["requests_per_s"] == 13


def test_a_window_is_read_on_the_clock_of_the_worker_that_sent() -> None:
    here, there = _rows((100, 1, 0), start=0), _rows((50, 1, 0), worker=1, start=77 * SECOND)
    cell = _cell(np.concatenate([here, there]), _part(0, 0, SECOND), _part(1, 77 * SECOND, 78 * SECOND))
    assert cell["sent"] == 150
    assert cell["requests_per_s"] == 150


def test_workers_are_merged_sample_by_sample_and_never_by_their_percentiles() -> None:
    quick, slow = _rows((990, 1, 0)), _rows((10, 1000, 0), worker=1)
    cell = _cell(np.concatenate([quick, slow]), _part(0), _part(1))
    assert (cell["service_ms"]["p50"], cell["service_ms"]["p99"], cell["service_ms"]["max"]) == (1, 1, 1000)


def test_sent_is_ok_and_failed_and_abandoned() -> None:
    cell = _cell(_rows((20, 5, 0), (3, 1, UNAVAILABLE), (2, 0, samples.ABANDONED), (4, 9, DEADLINE), (1, 1, samples.UNUSABLE)))
    assert (cell["sent"], cell["ok"], cell["failed"], cell["abandoned"]) == (30, 20, 8, 2)
    assert cell["errors"] == {"UNUSABLE_REPLY": 1, "DEADLINE_EXCEEDED": 4, "UNAVAILABLE": 3}


def test_failures_never_enter_latencies_throughput_or_accuracy() -> None:
    cell = _cell(_rows((50, 20, 0), (50, 1, UNAVAILABLE)))
    assert cell["service_ms"]["mean"] == 20
    assert cell["service_ms"]["min"] == 20
    assert cell["requests_per_s"] == 5
    assert cell["accuracy"] == 1


def test_requests_and_images_per_second_are_told_apart() -> None:
    cell = _cell(_rows((1000, 1, 0), items=8), cell=Cell(0, "cnn2", 8, 1))
    assert (cell["requests_per_s"], cell["images_per_s"]) == (100, 800)


def test_the_rate_is_over_the_whole_window_and_not_its_end() -> None:
    cell = _cell(
        np.concatenate([_rows((5000, 1, 0), every=10 * MS), _rows((100, 1, 0), start=50 * SECOND, every=100 * MS)]), _part(end=60 * SECOND)
    )
    assert cell["requests_per_s"] == 85


def test_without_successes_values_are_missing_and_the_cell_is_not_valid() -> None:
    cell = _cell(_rows((30, 1, UNAVAILABLE)))
    assert cell["response_ms"]["p50"] is None
    assert cell["accuracy"] is None
    assert not cell["valid"]
    assert "no request succeeded" in cell["reasons"]


def test_a_run_that_ends_within_its_warm_up_measured_nothing() -> None:
    cell = _cell(_rows((30, 1, 0)), Part(0, None, None, 1, None, None))
    assert (cell["sent"], cell["requests_per_s"], cell["window_s"]) == (0, None, None)
    assert not cell["valid"]


def _busy(count: int = 1000) -> samples.Rows:
    return _rows((count, 10, 0), every=10 * MS)


def test_a_cell_with_enough_right_answers_is_valid() -> None:
    cell = _cell(_busy(), accuracy=0.99)
    assert cell["valid"], cell["reasons"]
    assert cell["notes"] == ["withheld, 1,000 samples are too few: p99.9 (10,000 needed)"]


@pytest.mark.parametrize(
    ("rows", "part", "says"),
    [
        (_busy(), _part(client_cpu=0.9), "client-bound"),
        (_busy(), _part(versions={1: 990, 2: 10}), "several versions: 990 of version 1, 10 of version 2"),
        (_busy(), _part(users=0), "only 0 of 1 users could connect"),
        (_rows((1000, 2, 0), every=10 * MS), _part(), "only 0.2 of 1 requests were in flight"),
        (_rows((980, 10, 0), (20, 1, UNAVAILABLE), every=10 * MS), _part(), "20 of 1000 requests failed"),
        (_rows((999, 10, 0), (1, 0, samples.ABANDONED), every=10 * MS), _part(), "still running when the drain ended"),
    ],
)
def test_a_cell_that_can_not_be_trusted_says_why(rows: samples.Rows, part: Part, says: str) -> None:
    cell = _cell(rows, part)
    assert not cell["valid"]
    assert any(says in reason for reason in cell["reasons"]), cell["reasons"]


def test_a_server_that_always_gives_one_label_is_found_out() -> None:
    rows = _busy()
    rows["correct"][100:] = 0
    cell = _cell(rows, accuracy=0.98)
    assert cell["accuracy"] == 0.1
    assert "10.0% of the answers were right, the training record says 98.0%" in cell["reasons"]


def test_failures_leave_the_accuracy_of_the_successes_alone() -> None:
    rows = _rows((500, 10, 0), (500, 1, UNAVAILABLE), every=10 * MS)
    rows["correct"][:10] = 0
    assert _cell(rows, accuracy=0.98)["accuracy"] == 0.98


def test_a_row_of_the_table_has_every_column_and_blanks_for_missing_values() -> None:
    flat = row(_cell(_rows((30, 1, UNAVAILABLE))))
    assert list(flat) == COLUMNS or set(flat) == set(COLUMNS)
    assert flat["response_p50_ms"] is None
    assert flat["failed"] == 30
    assert flat["errors"] == "UNAVAILABLE 30"
    assert flat["valid"] == "no"


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.sampled_from([0, 4, 14, -2])), max_size=50), st.integers(0, 5))
def test_a_recorder_gives_back_what_it_was_told(requests: list[tuple[int, int, int]], abandoned: int) -> None:
    recorder = Recorder(items=8, cell=3)
    for sent, done, status in requests:
        recorder.add(sent, done, status, 7, 1)
    for number in range(abandoned):
        recorder.abandon(number)
    rows = recorder.take()
    assert len(recorder.take()) == 0
    assert len(rows) == len(requests) + abandoned
    assert list(zip(rows["sent_ns"], rows["done_ns"], rows["status"], strict=True))[: len(requests)] == requests
    assert (rows["scheduled_ns"] == rows["sent_ns"]).all()
    assert set(rows["items"]) <= {8}
    assert set(rows["cell"]) <= {3}
    assert (rows["status"] == samples.ABANDONED).sum() == abandoned


def test_a_share_survives_the_way_to_the_master() -> None:
    part = _part(3, versions={1: 5, 2: 6}, problems={"UNAVAILABLE: x": 2})
    assert Part.from_message(part.to_message(), 3) == part
