from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest import samples
from loadtest.errors import LoadError
from loadtest.runs import RunWriter

int64 = st.integers(-(2**62), 2**62)
row = st.tuples(
    st.integers(0, 99),
    st.integers(0, 99),
    int64,
    int64,
    int64 | st.just(samples.NOT_DONE),
    st.integers(-2, 16),
    st.integers(0, 9),
    st.integers(0, 9),
)


def _rows(count: int, cell: int = 0) -> samples.Rows:
    return samples.rows((cell, 0, number, number, number + 5, 0, 1, 1) for number in range(count))


def _finish(writer: RunWriter, complete: bool = True) -> Path:
    return writer.finish({"complete": complete, "cells": [{"id": 0, "model": "cnn2", "valid": True}]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.lists(st.lists(row, max_size=20), max_size=4))
def test_samples_come_back_from_the_file_as_they_were(tmp_path: Path, chunks: list[list[tuple[int, ...]]]) -> None:
    written = [samples.rows(chunk) for chunk in chunks]
    count = samples.write(tmp_path / "samples.parquet", written)
    everything = np.concatenate([np.empty(0, samples.DTYPE), *written])
    assert count == len(everything)
    assert np.array_equal(samples.read(tmp_path / "samples.parquet"), everything)


def test_an_abandoned_request_has_no_end_in_the_file(tmp_path: Path) -> None:
    samples.write(tmp_path / "s.parquet", [samples.rows([(0, 0, 1, 1, samples.NOT_DONE, samples.ABANDONED, 1, 0)])])
    assert pq.read_table(tmp_path / "s.parquet").to_pylist()[0]["done_ns"] is None


def test_the_columns_have_the_types_that_the_format_states(tmp_path: Path) -> None:
    samples.write(tmp_path / "s.parquet", [_rows(1)])
    assert {field.name: str(field.type) for field in pq.read_schema(tmp_path / "s.parquet")} == {
        "cell": "int32",
        "worker": "int16",
        "scheduled_ns": "int64",
        "sent_ns": "int64",
        "done_ns": "int64",
        "status": "int8",
        "items": "int32",
        "correct": "int32",
    }


def test_a_finished_run_has_its_files_and_latest_points_at_it(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, "first")
    writer.add(_rows(3), worker=2)
    writer.add(_rows(2, cell=1), worker=0)
    assert len(writer.rows(0)) == 3
    folder = _finish(writer)
    assert sorted(child.name for child in folder.iterdir()) == ["run.json", "samples.parquet", "summary.csv"]
    assert (tmp_path / "latest").resolve() == folder.resolve()
    assert json.loads((folder / "run.json").read_text())["schema"] == "timetoscore.run/1"
    assert samples.read(folder / "samples.parquet")["worker"].tolist() == [2, 2, 2, 0, 0]
    with (folder / "summary.csv").open() as table:
        assert [line["model"] for line in csv.DictReader(table)] == ["cnn2"]


def test_until_it_is_finished_a_run_has_no_folder_of_its_name(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, "slow")
    writer.add(_rows(3), worker=0)
    assert [child.name for child in tmp_path.iterdir()] == [f".{writer.id}.partial"]


def test_runs_of_the_same_second_and_label_do_not_replace_each_other(tmp_path: Path) -> None:
    writers = [RunWriter(tmp_path, "same") for _ in range(3)]
    folders = {_finish(writer) for writer in writers}
    assert len(folders) == 3
    assert (tmp_path / "latest").resolve() == Path(tmp_path / writers[-1].id).resolve()


def test_a_refused_run_leaves_nothing_and_a_measured_one_stays(tmp_path: Path) -> None:
    unused, used = RunWriter(tmp_path, "a"), RunWriter(tmp_path, "b")
    used.add(_rows(1), worker=0)
    for writer in (unused, used):
        writer.discard_unused()
    assert [child.name for child in tmp_path.iterdir()] == [f".{used.id}.partial"]


def test_a_run_without_samples_is_still_a_whole_run(tmp_path: Path) -> None:
    folder = _finish(RunWriter(tmp_path, "empty"), complete=False)
    assert len(samples.read(folder / "samples.parquet")) == 0


@pytest.mark.parametrize("label", ["", "a/b", "../up", ".hidden", "a b", "x" * 61, "-x"])
def test_a_label_that_is_no_plain_name_is_refused(tmp_path: Path, label: str) -> None:
    with pytest.raises(LoadError, match="--label"):
        RunWriter(tmp_path, label)


def test_a_place_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LoadError, match="can't write runs"):
        RunWriter(tmp_path / "file", "x")


def test_a_disk_that_fills_up_is_one_error_and_the_samples_so_far_stay(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, "full")
    writer.add(_rows(1000), worker=0)
    kept = (writer.folder / "samples.raw").stat().st_size
    spool = writer._spool.name
    writer._spool.close()
    with Path("/dev/full").open("wb") as full:  # every write to it fails as on a full disk
        writer._spool = full
        writer.add(_rows(1000), worker=0)
        writer.add(_rows(1000), worker=0)
        with pytest.raises(LoadError, match=r"No space left on device; what was measured so far is in .*\.partial"):
            _finish(writer)
    assert Path(spool).stat().st_size == kept
    assert len(writer.rows(0)) == 1000
    assert not (tmp_path / "latest").exists()
