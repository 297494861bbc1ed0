from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import run_module
from train.files import sha256


def with_data(data_folder: Path, artifacts: Path) -> Path:
    """A new artifacts folder that shares the cached data set."""
    artifacts.mkdir()
    (artifacts / "data").symlink_to(data_folder / "data")
    return artifacts


def on_a_terminal(arguments: list[str]) -> tuple[int, str]:
    """Runs a module with a pseudo-terminal as its output; returns its exit status and all it wrote."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-m", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return process.wait(), seen.decode()


class Story(NamedTuple):
    folder: Path
    first: subprocess.CompletedProcess[str]
    first_record: dict[str, Any]
    second: subprocess.CompletedProcess[str]
    second_files: dict[str, str]
    again: tuple[int, str]


def files(folder: Path) -> dict[str, str]:
    return {file.name: sha256(file) for file in folder.iterdir() if file.is_file()}


@pytest.fixture(scope="module")
def story(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The same training three times: into a pipe, once more, and with --again on a terminal."""
    artifacts = with_data(data_folder, tmp_path_factory.mktemp("story") / "artifacts")
    training = artifacts / "training"
    arguments = ["train", "--conv-layers", "2", "--steps", "101", "--artifacts", str(artifacts)]
    # Log collectors that can show colours set this; they are no terminal all the same.
    first = run_module(*arguments, env={**os.environ, "FORCE_COLOR": "1"})
    assert first.returncode == 0, first.stderr
    first_record = json.loads((training / "cnn2.json").read_text())
    second = run_module(*arguments)
    second_files = files(training)
    return Story(training, first, first_record, second, second_files, on_a_terminal([*arguments, "--again"]))


@pytest.mark.slow
def test_a_pipe_gets_a_line_every_hundred_steps_and_a_line_with_the_result(story: Story) -> None:
    lines = story.first.stdout.splitlines()
    shown = r"training accuracy \d\.\d\d, loss \d+\.\d{3}, \d+\.\d s"
    assert [bool(re.fullmatch(f"cnn2 step {step}/101: {shown}", line)) for step, line in zip((0, 100), lines, strict=False)] == [True, True]
    assert re.fullmatch(
        r"cnn2: \d\d\.\d\d% of the test images right after 101 steps, \d+\.\d s of training on [CG]PU: .*cnn2\.json", lines[2]
    )
    assert len(lines) == 3


@pytest.mark.slow
def test_the_record_of_a_shortened_run_says_so(story: Story) -> None:
    assert story.first_record["recipe"]["steps"] == 101
    assert [point["step"] for point in story.first_record["curve"]] == [0, 100]


@pytest.mark.slow
def test_the_same_recipe_is_not_trained_twice(story: Story) -> None:
    assert story.second.returncode == 0
    assert story.second.stdout == f"cnn2: already trained by this recipe, see {story.folder}/cnn2.json (--again trains anew)\n"
    assert set(story.second_files) == {"cnn2.json", "cnn2.weights.h5"}
    assert story.second_files["cnn2.weights.h5"] == story.first_record["weights_sha256"]


@pytest.mark.slow
def test_a_terminal_gets_a_bar(story: Story) -> None:
    status, seen = story.again
    assert status == 0, seen
    assert "101/101" in seen
    assert "━" in seen
    assert "cnn2 step" not in seen


@pytest.mark.slow
def test_training_again_keeps_the_earlier_pair(story: Story) -> None:
    earlier = story.folder / "earlier"
    (kept,) = earlier.glob("*.json")
    assert json.loads(kept.read_text()) == story.first_record
    assert sha256(kept.with_name(f"{kept.stem}.weights.h5")) == story.first_record["weights_sha256"]
    assert set(files(story.folder)) == {"cnn2.json", "cnn2.weights.h5"}


@pytest.mark.slow
def test_training_again_begins_with_the_same_loss(story: Story) -> None:
    again = json.loads((story.folder / "cnn2.json").read_text())
    assert again["started_at"] > story.first_record["started_at"]
    assert again["curve"][0]["loss"] == story.first_record["curve"][0]["loss"]


@pytest.mark.slow
def test_an_interrupt_ends_in_one_line_and_leaves_nothing_half_made(data_folder: Path, tmp_path: Path) -> None:
    artifacts = with_data(data_folder, tmp_path / "artifacts")
    # A shell's background jobs ignore the signal, and so would the process: `env` undoes that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "train", "--artifacts", str(artifacts), "--conv-layers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline().startswith("cnn2 step 0/20000: ")
    process.send_signal(2)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "train: interrupted; what was being trained is not kept\n")
    assert list((artifacts / "training").iterdir()) == []


def test_a_training_folder_that_can_not_be_written_is_said_before_any_training(data_folder: Path, tmp_path: Path) -> None:
    artifacts = with_data(data_folder, tmp_path / "artifacts")
    (artifacts / "training").write_text("a file where the folder should be")
    done = run_module("train", "--steps", "1", "--conv-layers", "2", "--artifacts", artifacts)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"train: can't write to {artifacts}/training: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--conv-layers", "3"], "train: 3 convolution layers: give an even number from 2"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--steps", "many"], "invalid int value"),
        (["--seed", "-1"], "--seed must be from 0 to 4294967295"),
        (["--seed", "4294967296"], "--seed must be from 0 to 4294967295"),
        (["--data", "/no/such/folder"], "folder /no/such/folder: there is no such folder"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = run_module("train", *arguments, "--artifacts", tmp_path / "artifacts")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "artifacts").exists()
