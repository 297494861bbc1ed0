"""Version folders: `<models>/<model>/<number>`, where a number never appears before its content is whole."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from export.errors import ExportError


def versions(model_folder: Path) -> list[int]:
    """The version numbers in a model's folder, upwards. Names that are not plain digits are none."""
    if not model_folder.is_dir():
        return []
    return sorted(int(child.name) for child in model_folder.iterdir() if child.name.isascii() and child.name.isdigit() and child.is_dir())


def publish(model_folder: Path, write: Callable[[Path], None]) -> Path:
    """Lets `write` fill a new folder, renames it to the next free version and returns that.

    TensorFlow Serving loads a numeric folder the moment it sees one and never reloads a number, so a version is
    made under a name that isn't numeric, on the same file system, and a taken number is never reused. If `write` fails,
    nothing is left. Raises ExportError where the folder can't be written.
    """
    try:
        model_folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".export-", dir=model_folder))
    except OSError as problem:
        raise ExportError(f"can't write to {model_folder}: {problem.strerror or problem}; choose --artifacts") from problem
    try:
        content = temporary / "version"
        content.mkdir()
        write(content)
        return _claim(content, model_folder)
    except OSError as problem:
        raise ExportError(f"can't write a version of {model_folder.name}: {problem.strerror or problem}") from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _claim(content: Path, model_folder: Path) -> Path:
    number = max(versions(model_folder), default=0) + 1
    while True:
        target = model_folder / str(number)
        # Renaming a folder onto one that isn't empty fails, so two exports can't take the same number.
        if not target.exists():
            try:
                return content.rename(target)
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        number += 1
