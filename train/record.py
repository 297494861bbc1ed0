"""The training record and the weights on disk: `<model>.json` beside `<model>.weights.h5` in one folder."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from train.errors import TrainError
from train.files import replacing, sha256, write_json

SCHEMA = "timetoscore.training/1"


def record_path(folder: Path, model: str) -> Path:
    """Where the record of `model` lies."""
    return folder / f"{model}.json"


def weights_path(folder: Path, model: str) -> Path:
    """Where the weights of `model` lie."""
    return folder / f"{model}.weights.h5"


def read(folder: Path, model: str) -> dict[str, Any]:
    """The record of `model`, checked against its weights file. Raises TrainError if either is missing or they don't belong together."""
    path, weights = record_path(folder, model), weights_path(folder, model)
    if not path.exists():
        raise TrainError(f"no training record at {path}: run 'make train' (or 'python -m train') first")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        known = record["schema"] == SCHEMA and record["model"] == model
        wanted = record["weights_sha256"] if known else None
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise TrainError(f"{path} is not a training record ({problem}): move it away and train again") from problem
    if not known:
        raise TrainError(f"{path} is not a record of {model} in the form {SCHEMA}: move it away and train again")
    if not weights.exists() or sha256(weights) != wanted:
        raise TrainError(f"{weights} is missing or not the one that {path.name} describes: train again with --again")
    assert isinstance(record, dict)  # noqa: S101 - for the type checker; the schema test above has seen to it
    return record


def write(folder: Path, model: Any, record: dict[str, Any]) -> Path:
    """Writes weights and record, and keeps an earlier pair under `earlier/`. Raises TrainError where that can't be done."""
    name = str(record["model"])
    path, weights = record_path(folder, name), weights_path(folder, name)
    try:
        with replacing(weights, suffix=".weights.h5") as temporary:
            model.save_weights(temporary)
            # The weights file is made before the earlier pair is moved, so that a full disk loses neither.
            _keep_earlier(path, weights)
            digest = sha256(temporary)
        write_json(path, {**record, "weights_sha256": digest})
    except OSError as problem:
        raise _not_written(folder, problem) from problem
    return path


def check_writable(folder: Path) -> None:
    """Raises TrainError if nothing can be written to `folder`, so that this is known before the training and not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise _not_written(folder, problem) from problem


def _not_written(folder: Path, problem: OSError) -> TrainError:
    return TrainError(f"can't write to {folder}: {problem.strerror or problem}; free some space or choose --artifacts")


def _keep_earlier(path: Path, weights: Path) -> None:
    if not path.exists():
        return
    earlier = path.parent / "earlier"
    earlier.mkdir(exist_ok=True)
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))["started_at"].replace(":", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        stamp = "unreadable"
    number, target = 1, earlier / f"{path.stem}-{stamp}"
    while target.with_name(f"{target.name}-{number}.json").exists():
        number += 1
    target = target.with_name(f"{target.name}-{number}")
    path.rename(target.with_name(f"{target.name}.json"))
    if weights.exists():
        weights.rename(target.with_name(f"{target.name}.weights.h5"))
