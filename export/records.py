"""The training record that travels with an exported version. Apart from the writing, since readers have no TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXTRA = "assets.extra"
"""The folder of a SavedModel that servers leave alone, but for the warm-up file that TensorFlow Serving looks for."""
_FILE = "training.json"


def write_record(version: Path, record: dict[str, Any]) -> None:
    """Puts `record` beside the model in `version`."""
    (version / EXTRA).mkdir(exist_ok=True)
    (version / EXTRA / _FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_record(version: Path) -> dict[str, Any] | None:
    """The training record in `version`, or None if it has none that can be read."""
    try:
        record = json.loads((version / EXTRA / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
