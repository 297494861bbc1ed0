"""Reading a run folder: `run.json` as a Run, `samples.parquet` as rows. Nothing here computes or prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from loadtest import samples
from report.decode import DecodeError, decode
from report.errors import ReportError
from report.records import Run

SCHEMA = "timetoscore.run/1"


def parse(document: Any) -> Run:
    """The value of a `run.json`, already read from JSON, as a Run. Raises ReportError if it isn't of the schema."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise ReportError(f"the schema is {found!r}, this version reads {SCHEMA!r}: report it with the version that wrote it")
    try:
        run = decode(Run, {**document, "folder": None, "raw": document}, "")
    except DecodeError as problem:
        raise ReportError(f"{problem}: see docs/run-format.md, or run the load again") from problem
    assert isinstance(run, Run)  # noqa: S101 - for the type checker
    return run


def manifest_path(folder: Path) -> Path:
    """Where the manifest of a run folder lies."""
    return folder / "run.json"


def load(folder: Path) -> Run:
    """The run in `folder`, which may be a link to it. Raises ReportError, in one line that says what to do."""
    if folder.is_symlink() and not folder.exists():
        raise ReportError(f"{folder} points to {folder.readlink()}, which isn't there: name a run folder, or run 'python -m loadtest'")
    if folder.is_file():
        raise ReportError(f"{folder} is a file: name the run folder that holds it")
    if not folder.exists():
        raise ReportError(f"no run at {folder}: run 'python -m loadtest' first, or name a run folder")
    path = manifest_path(folder)
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_finite)
    except FileNotFoundError as problem:
        raise ReportError(f"{folder} holds no run.json: name a run folder, such as one under artifacts/runs") from problem
    except OSError as problem:
        raise ReportError(f"can't read {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        raise ReportError(f"{path} is not valid JSON ({problem}): it was cut short or edited; run the load again") from problem
    try:
        run = parse(document)
    except ReportError as problem:
        raise ReportError(f"{path}: {problem}") from problem
    return replace(run, folder=folder.resolve())


def load_samples(folder: Path) -> samples.Rows:
    """Every request of the run in `folder`, shape [n]. Raises ReportError if the file is missing or damaged."""
    path = folder / "samples.parquet"
    try:
        return samples.read(path)
    except FileNotFoundError as problem:
        raise ReportError(f"{path} is missing: the report needs the raw samples; copy the whole run folder") from problem
    except (OSError, pa.ArrowException, KeyError) as problem:
        what = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ReportError(f"{path} can't be read ({what}): it was cut short or is not a samples file; copy it again") from problem


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")
