"""What crosses rooms: from training to the report, by the commands that a user types."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.endpoint import Endpoint
from tests.conftest import run_module

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_make_bench_goes_from_nothing_to_a_report(artifacts: Path, tmp_path: Path) -> None:
    """The main job with few steps and short windows; training and data are taken over, the rest is made."""
    place = tmp_path / "artifacts"
    for part in ("data", "training"):
        shutil.copytree(artifacts / part, place / part)
    loadtest = "LOADTEST=--warmup 0.3 --window 0.7"
    command = ["make", "--no-print-directory", "bench", "STEPS=100", f"ARTIFACTS={place}", loadtest, f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = place / "runs" / "latest"
    assert sorted(child.name for child in run.iterdir()) == ["report.html", "run.json", "samples.parquet", "summary.csv"]
    facts = json.loads((run / "run.json").read_text())
    assert len(facts["cells"]) == 16
    assert set(facts["training"]) == {"cnn2", "cnn4"}
    page = (run / "report.html").read_text()
    assert "embedded server" in page
    assert facts["id"] in page


@pytest.mark.slow
def test_a_locust_run_can_be_reported_and_compared(artifacts: Path, server: Endpoint, tmp_path: Path) -> None:
    locust = [Path(sys.executable).with_name("locust"), "-f", "loadtest/score.py", "--headless", "-u", "2", "-r", "2", "-t", "3s"]
    for label in ("base", "new"):
        where = ["--host", server.address, "--warmup", "0.5", "--artifacts", artifacts, "--out", tmp_path, "--label", label]
        subprocess.run([*map(str, locust), *map(str, where)], cwd=PROJECT, capture_output=True, check=True, timeout=60)
    base, new = sorted(folder for folder in tmp_path.iterdir() if not folder.is_symlink())
    assert run_module("report", new).returncode == 0
    assert (new / "report.html").stat().st_size < 8 * 2**20
    compared = run_module("report", "compare", base, new)
    assert compared.returncode == 0, compared.stderr
    assert "cnn2" in compared.stdout


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert {"train", "export", "serve", "score", "bench", "report", "compare", "test", "test-fast", "lint", "clean"} <= _targets()
    assert set(re.findall(r"make ([a-z-]+) ", done.stdout)) == _targets()


@pytest.mark.parametrize("stage", ["train", "export", "serving", "loadtest", "report"])
def test_every_stage_explains_its_options(stage: str) -> None:
    done = run_module(stage, "--help")
    assert done.returncode == 0
    assert f"python -m {stage}" in done.stdout
    assert len(done.stdout.splitlines()) > 5


def test_documented_commands_exist() -> None:
    """Every make target, module and file that the README names is there."""
    text = (PROJECT / "README.md").read_text()
    assert set(re.findall(r"^make ([a-z-]+(?: [a-z-]+)*)", text, re.MULTILINE))
    for line in re.findall(r"^make (.*)$", text, re.MULTILINE):
        for word in line.split("#")[0].split():
            assert "=" in word or word in _targets(), line
    for module in re.findall(r"python -m (\w+)", text):
        assert (PROJECT / module / "__main__.py").exists(), module
    for target in re.findall(r"\]\((?!https?://|#)([^)]+)\)", text):
        assert (PROJECT / target).exists(), target


def test_documented_options_exist() -> None:
    text = (PROJECT / "README.md").read_text()
    for module in ("train", "export", "serving", "loadtest", "report"):
        known = run_module(module, "--help").stdout
        for line in re.findall(rf"^(?:\.venv/bin/)?python -m {module} (.*)$", text, re.MULTILINE):
            for option in re.findall(r"--[a-z][a-z_-]*", line.split("#")[0]):
                assert option in known, f"{module} {option}"
    locust = [Path(sys.executable).with_name("locust"), "-f", "loadtest/score.py"]
    theirs = subprocess.run([*locust, "--help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    known = theirs + _locustfile_help()
    for line in re.findall(r"^(?:\.venv/bin/)?locust (.*)$", text, re.MULTILINE):
        for option in re.findall(r"(?<!\S)-{1,2}[a-z][a-z-]*", line.split("#")[0]):
            assert option in known, option


def _locustfile_help() -> str:
    # In a process of its own: importing Locust changes the sockets of the process that does.
    show = "import argparse; from loadtest.score import add_arguments as add; p = argparse.ArgumentParser(); add(p); print(p.format_help())"
    return subprocess.run([sys.executable, "-c", show], cwd=PROJECT, capture_output=True, text=True, check=True).stdout


def test_the_locustfiles_options_are_those_of_the_documented_table() -> None:
    documented = re.findall(r"^\| `(--[a-z-]+)` \|", (PROJECT / "README.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(set(re.findall(r"^  (--[a-z-]+)", _locustfile_help(), re.MULTILINE)))


def test_the_project_names_no_path_of_a_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    here = str(PROJECT)
    for name in tracked:
        path = PROJECT / name
        if path.exists() and path.suffix not in (".png", ".parquet"):
            text = path.read_text(errors="replace")
            assert here not in text, name
    assert os.sep in here
