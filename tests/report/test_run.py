"""Reading a run folder: what is accepted, and what is said in one line about what isn't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report import run
from report.errors import ReportError
from tests.report import recorded


def write(folder: Path, document: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return folder


def problem(folder: Path) -> str:
    with pytest.raises(ReportError) as caught:
        run.load(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_recorded_run_is_read_with_its_cells_and_numbers(bench: Path) -> None:
    found = run.load(bench)
    assert len(found.cells) == 16
    assert found.complete
    assert found.server.engine == "embedded"
    assert found.training["cnn2"].recipe.steps == 1000
    first = found.cells[0]
    assert first.sent == first.ok + first.failed + first.abandoned
    assert first.response_ms.interval("p50") is not None


def test_the_link_latest_leads_to_the_run(bench: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(bench)
    assert run.load(tmp_path / "latest").folder == bench.resolve()


def test_a_link_to_nowhere_says_so(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("gone")
    assert "points to gone, which isn't there" in problem(tmp_path / "latest")


def test_a_missing_folder_says_how_to_make_a_run(tmp_path: Path) -> None:
    assert "python -m loadtest" in problem(tmp_path / "none")


def test_a_folder_without_run_json_says_what_to_name(tmp_path: Path) -> None:
    assert "holds no run.json" in problem(tmp_path)


def test_a_file_in_place_of_a_folder_is_refused(bench: Path) -> None:
    assert "is a file" in problem(bench / "run.json")


@pytest.mark.parametrize("text", ['{"schema": "timetos', "", "[1,", '{"schema": "timetoscore.run/1", "id": NaN}', "\x00"])
def test_broken_json_is_named_as_such(tmp_path: Path, text: str) -> None:
    assert "is not valid JSON" in problem(write(tmp_path, text))


@pytest.mark.parametrize("document", [{"schema": "timetoscore.run/2"}, {}, [], "", 3, None])
def test_another_schema_is_refused(tmp_path: Path, document: Any) -> None:
    assert "timetoscore.run/1" in problem(write(tmp_path, json.dumps(document)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cells": {}}, "cells should be a list"),
        ({"complete": None}, "complete is missing"),
        ({"complete": 1}, "complete should be true or false"),
        ({"server": []}, "server should be an object"),
        ({"cells": [{"id": 0}]}, "cells[0].model is missing"),
        ({"notes": [1]}, "notes[0] should be text"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_by_its_place(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    assert says in problem(write(tmp_path, recorded.document([]) | change))


def test_a_value_that_is_true_is_no_count(tmp_path: Path, bench: Path) -> None:
    document = json.loads((bench / "run.json").read_text(encoding="utf-8"))
    document["cells"][3]["sent"] = True
    assert "cells[3].sent should be a whole number" in problem(write(tmp_path, document))


def test_missing_values_stay_missing_and_unknown_keys_are_ignored(tmp_path: Path) -> None:
    found = run.load(write(tmp_path, recorded.document([], server=None, client={"channel": None}, invented=1)))
    assert found.server.engine == "unknown"
    assert found.client.think_time_s is None


def test_missing_samples_are_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="copy the whole run folder"):
        run.load_samples(tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 1000])
def test_truncated_samples_are_named(tmp_path: Path, bench: Path, keep: int) -> None:
    (tmp_path / "samples.parquet").write_bytes((bench / "samples.parquet").read_bytes()[:keep])
    with pytest.raises(ReportError, match="can't be read") as caught:
        run.load_samples(tmp_path)
    assert "\n" not in str(caught.value)
