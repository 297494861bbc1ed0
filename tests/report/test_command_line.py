"""`python -m report` as its users meet it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from report.__main__ import main


@pytest.fixture
def folder(bench: Path, tmp_path: Path) -> Path:
    for name in ("run.json", "samples.parquet"):
        (tmp_path / "run").mkdir(exist_ok=True)
        shutil.copy(bench / name, tmp_path / "run" / name)
    return tmp_path / "run"


def test_a_report_and_a_summary_are_written_and_the_cells_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"report: {folder / 'report.html'}" in said
    assert "embedded server (not TensorFlow Serving)" in said
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "run.json", "samples.parquet", "summary.csv"]


def test_the_newest_run_is_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "artifacts" / "runs").mkdir(parents=True)
    (folder.parent / "artifacts" / "runs" / "latest").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    assert main([]) == 0
    assert (folder / "report.html").exists()


def test_writing_the_same_report_again_is_fine(folder: Path) -> None:
    assert main([str(folder)]) == main([str(folder)]) == 0


def test_another_report_in_its_place_is_kept_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "report.html").write_text("mine", encoding="utf-8")
    assert main([str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "report.html").read_text(encoding="utf-8") == "mine"
    assert main([str(folder), "--force"]) == 0
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_summary_that_is_there_is_left_alone(folder: Path) -> None:
    (folder / "summary.csv").write_text("mine", encoding="utf-8")
    assert main([str(folder)]) == 0
    assert (folder / "summary.csv").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("words", [["gone"], ["compare", "gone", "gone"], ["compare", "gone"]])
def test_a_mistake_is_one_line_on_stderr_and_status_2(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("report: ")
    assert said.err.count("\n") == 1


def test_damaged_samples_leave_no_report_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "samples.parquet").write_bytes(b"PAR1")
    assert main([str(folder)]) == 2
    assert "samples.parquet" in capsys.readouterr().err
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("kind", ["text", "markdown", "json"])
def test_runs_are_compared_in_the_format_asked_for(folder: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder), str(folder), "--format", kind]) == 0
    said = capsys.readouterr().out
    assert "no difference shown" in said
    if kind == "json":
        assert len(json.loads(said)["pairs"]) == 1


@pytest.mark.parametrize(("words", "says"), [(["--help"], "compare A B"), (["compare", "--help"], "--format")])
def test_help_names_what_can_be_done(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(words)
    assert done.value.code == 0
    assert says in capsys.readouterr().out


def test_the_room_starts_without_grpc_tensorflow_or_locust() -> None:
    names = ("grpc", "tensorflow", "keras", "locust", "gevent")
    check = f"import sys, report.__main__, report.html; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
