from __future__ import annotations

import errno
import json
import math
import re
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import keras
import pytest

from train import record
from train.environment import PROJECT
from train.errors import TrainError
from train.files import replacing, sha256, write_json

NUMBER = (int, float)
FIELDS: dict[str, Any] = {
    "schema": str, "model": str, "conv_layers": int, "parameters": int, "flops_per_image": int,
    "dataset": {"name": str, "source": str, "sha256": str, "train_images": int, "test_images": int},
    "recipe": {
        "steps": int, "batch_size": int, "optimizer": str, "learning_rate": float, "dropout_rate": float, "precision": str, "seed": int,
    },
    "device": str,
    "host": {"cpu_model": str, "cpus": NUMBER, "memory_bytes": int, "kernel": str, "gpus": list},
    "software": {
        "python": str, "tensorflow": str, "keras": str, "grpcio": str, "locust": str, "timetoscore": str,
        "git_commit": (str, type(None)), "git_dirty": (bool, type(None)),
    },
    "started_at": str, "compile_seconds": float, "train_seconds": float, "evaluate_seconds": float, "total_seconds": float,
    "steps_per_s": float, "images_per_s": float, "curve": list, "test_accuracy": float, "test_loss": float, "weights_sha256": str,
}  # fmt: skip
POINT = {"step": int, "loss": float, "accuracy": float, "seconds": float}


def documented(section: str) -> dict[str, list[str]]:
    """The fields that docs/run-format.md lists under the heading `section`, with the fields inside each."""
    text = (PROJECT / "docs" / "run-format.md").read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    fields = {}
    for line in text.split("```")[1].strip().splitlines():
        names = re.match(r"\w+(?:, \w+)*", line)
        inner = re.search(r"\{([^}]*)\}", line)
        assert names, line
        for name in names[0].split(", "):
            fields[name] = inner[1].split(", ") if inner else []
    return fields


def check(value: dict[str, Any], fields: dict[str, Any]) -> None:
    assert set(value) == set(fields)
    for name, wanted in fields.items():
        if isinstance(wanted, dict):
            check(value[name], wanted)
        else:
            assert isinstance(value[name], wanted), name
            assert not isinstance(value[name], float) or math.isfinite(value[name]), name
            assert not isinstance(value[name], bool) or bool in (wanted if isinstance(wanted, tuple) else ()), name


@pytest.mark.parametrize("model", ["cnn2", "cnn4"])
def test_a_record_has_every_documented_field_with_a_finite_value_of_its_type(trained: Path, model: str) -> None:
    found = record.read(trained / "training", model)
    check(found, FIELDS)
    for point in found["curve"]:
        check(point, POINT)
    fields = documented("Training record")
    assert set(fields) == set(FIELDS)
    assert set(fields["dataset"]) == set(FIELDS["dataset"])
    assert set(fields["recipe"]) == set(FIELDS["recipe"])
    assert set(fields["curve"]) == set(POINT)


@pytest.mark.parametrize(("model", "depth"), [("cnn2", 2), ("cnn4", 4)])
def test_a_record_states_what_was_done(trained: Path, data_folder: Path, model: str, depth: int) -> None:
    found = record.read(trained / "training", model)
    assert (found["model"], found["conv_layers"], found["recipe"]["steps"]) == (model, depth, 100)
    assert [point["step"] for point in found["curve"]] == [0]
    assert 0.5 < found["test_accuracy"] < 1
    assert found["test_accuracy"] * 10_000 == pytest.approx(round(found["test_accuracy"] * 10_000), abs=1e-9)
    assert found["weights_sha256"] == sha256(trained / "training" / f"{model}.weights.h5")
    assert datetime.fromisoformat(found["started_at"]).utcoffset() is not None
    assert found["total_seconds"] >= found["compile_seconds"] + found["train_seconds"] + found["evaluate_seconds"]


def tiny_model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def write(folder: Path, **changes: Any) -> Path:
    facts = {"schema": record.SCHEMA, "model": "cnn2", "started_at": "2026-01-02T03:04:05+00:00", **changes}
    return record.write(folder, tiny_model(), facts)


def test_weights_and_record_lie_side_by_side_and_can_be_read_by_everyone(tmp_path: Path) -> None:
    path = write(tmp_path / "training")
    assert path == tmp_path / "training" / "cnn2.json"
    assert {file.name for file in path.parent.iterdir()} == {"cnn2.json", "cnn2.weights.h5"}
    assert all(file.stat().st_mode & 0o777 == 0o644 for file in path.parent.iterdir())


def test_an_earlier_pair_is_kept_each_time(tmp_path: Path) -> None:
    for loss in (3, 2, 1):
        write(tmp_path, test_loss=loss)
    assert record.read(tmp_path, "cnn2")["test_loss"] == 1
    kept = sorted((tmp_path / "earlier").glob("*.json"))
    assert [file.name for file in kept] == [f"cnn2-2026-01-02T030405+0000-{number}.json" for number in (1, 2)]
    for file, loss in zip(kept, (3, 2), strict=True):
        facts = json.loads(file.read_text())
        assert facts["test_loss"] == loss
        assert sha256(file.with_name(f"{file.stem}.weights.h5")) == facts["weights_sha256"]


def test_an_earlier_record_that_can_not_be_read_is_kept_as_well(tmp_path: Path) -> None:
    (tmp_path / "cnn2.json").write_text("half of a rec")
    write(tmp_path)
    assert (tmp_path / "earlier" / "cnn2-unreadable-1.json").read_text() == "half of a rec"


def test_a_full_disk_is_one_line_and_leaves_the_earlier_pair_where_it_is(tmp_path: Path) -> None:
    class FullDisk:
        def save_weights(self, path: Path) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path, test_loss=1)
    with pytest.raises(TrainError, match=r"can't write to .*: No space left on device; free some space or choose --artifacts$"):
        record.write(tmp_path, FullDisk(), {"model": "cnn2"})
    assert record.read(tmp_path, "cnn2")["test_loss"] == 1
    assert {file.name for file in tmp_path.iterdir()} == {"cnn2.json", "cnn2.weights.h5"}


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(path.read_bytes() + b"\0"), Path.unlink])
def test_weights_that_do_not_belong_to_the_record_are_refused(tmp_path: Path, change: Any) -> None:
    write(tmp_path)
    change(tmp_path / "cnn2.weights.h5")
    with pytest.raises(TrainError, match=r"cnn2\.weights\.h5 is missing or not the one that cnn2\.json describes"):
        record.read(tmp_path, "cnn2")


@pytest.mark.parametrize(
    "text",
    [
        "", "<html>", "[]", "null", "{}", '{"schema": "timetoscore.training/2", "model": "cnn2"}', '{"schema": "timetoscore.training/1"}',
        '{"schema": "timetoscore.training/1", "model": "cnn4"}', '{"schema": "timetoscore.training/1", "model": "cnn2"}', "\udcff",
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    write(tmp_path)
    (tmp_path / "cnn2.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TrainError) as problem:
        record.read(tmp_path, "cnn2")
    assert "cnn2.json" in str(problem.value)
    assert "\n" not in str(problem.value)


def test_without_a_record_the_user_is_told_to_train(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="run 'make train'"):
        record.read(tmp_path, "cnn2")


def test_json_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    write_json(tmp_path / "any.json", {"loss": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "any.json", {"loss": math.nan})
    assert json.loads((tmp_path / "any.json").read_text()) == {"loss": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["any.json"]


def test_a_file_is_not_to_be_seen_before_it_is_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "any", suffix=".end") as temporary:
        temporary.write_text("half")
        assert temporary.name.endswith(".end")
        assert not (tmp_path / "any").exists()
    assert (tmp_path / "any").read_text() == "half"


def test_the_published_times_are_those_of_unnamed_hardware() -> None:
    published = json.loads((resources.files("train") / "published_times.json").read_text(encoding="utf-8"))
    assert published["hardware"] == "unnamed"
    assert published["recipe"] == {"steps": 20_000, "batch_size": 50}
    assert {(row["model"], row["device"]): row["seconds"] for row in published["train_seconds"]} == {
        ("cnn2", "gpu"): 284,
        ("cnn2", "cpu"): 2080,
        ("cnn4", "gpu"): 953,
        ("cnn4", "cpu"): 7991,
    }
