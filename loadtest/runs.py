"""The run folder on disk: made under a temporary name, renamed when whole, never overwritten (docs/run-format.md)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from loadtest import samples
from loadtest.errors import LoadError
from loadtest.flat import write_csv
from loadtest.samples import DTYPE, Rows
from train.files import write_json

SCHEMA = "timetoscore.run/1"
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_ROWS_PER_GROUP = 1 << 20


def now() -> str:
    """The time as ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunWriter:
    """Takes the samples of a run as they come and leaves the finished folder under `out`."""

    def __init__(self, out: Path, label: str) -> None:
        """Makes the temporary folder. Raises LoadError for a label that is no file name or an `out` that can't be written."""
        if not _LABEL.fullmatch(label):
            raise LoadError(f"--label is {label!r}: use up to 60 letters, digits, dots, dashes and underscores")
        self.out, self.label, self.started_at = out, label, now()
        self._used = False
        self._trouble: OSError | None = None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.id, self.folder = self._claim(f"{stamp}-{label}")
            self._spool = (self.folder / "samples.raw").open("wb")
        except OSError as problem:
            raise LoadError(f"can't write runs to {out}: {problem.strerror or problem}; choose another folder by --out") from problem

    def _claim(self, name: str) -> tuple[str, Path]:
        number = 1
        while True:
            chosen = name if number == 1 else f"{name}-{number}"
            folder = self.out / f".{chosen}.partial"
            if not (self.out / chosen).exists():
                try:
                    folder.mkdir()
                except FileExistsError:
                    pass
                else:
                    return chosen, folder
            number += 1

    def add(self, rows: Rows, worker: int) -> None:
        """Keeps samples of one worker, on disk, so that a long run doesn't fill the memory.

        Called between requests, so a disk that can't take them is remembered for `finish` to say, not raised.
        """
        self._used = True
        if self._trouble is not None:
            return
        rows["worker"] = worker
        try:
            self._spool.write(rows.tobytes())
            self._spool.flush()
        except OSError as problem:
            self._trouble = problem

    def rows(self, cell: int) -> Rows:
        """All samples of a cell so far."""
        everything = self._mapped()
        return np.array(everything[everything["cell"] == cell])

    def _mapped(self) -> Rows:
        path = self.folder / "samples.raw"
        whole = path.stat().st_size // DTYPE.itemsize  # a full disk may have cut the last row
        return np.memmap(path, DTYPE, "r", shape=(whole,)) if whole else np.empty(0, DTYPE)

    def finish(self, run: dict[str, Any]) -> Path:
        """Writes samples, manifest and table, renames the folder and points `latest` at it; returns the folder.

        Raises LoadError if the disk can't take it all; the samples so far then stay in the temporary folder.
        """
        self._used = True
        try:
            if self._trouble is not None:
                raise self._trouble
            self._spool.close()
            samples.write(self.folder / "samples.parquet", self._groups())
            head = {"schema": SCHEMA, "id": self.id, "label": self.label, "started_at": self.started_at, "finished_at": now()}
            write_json(self.folder / "run.json", {**head, **run})
            write_csv(self.folder / "summary.csv", run["cells"])
            (self.folder / "samples.raw").unlink()
            target = self.out / self.id
            self.folder.rename(target)
            _point(self.out / "latest", self.id)
        except OSError as problem:
            with contextlib.suppress(OSError):
                self._spool.close()
            raise LoadError(
                f"can't write the run: {problem.strerror or problem}; what was measured so far is in {self.folder}"
            ) from problem
        return target

    def _groups(self) -> Iterator[Rows]:
        everything = self._mapped()
        for start in range(0, len(everything), _ROWS_PER_GROUP):
            yield everything[start : start + _ROWS_PER_GROUP]

    def discard_unused(self) -> None:
        """Removes the temporary folder if nothing was measured: samples are kept whatever happens."""
        if not self._used:
            self._spool.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def _point(link: Path, name: str) -> None:
    temporary = link.with_name(f".latest.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name)
    temporary.replace(link)
