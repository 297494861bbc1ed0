"""From the raw samples of a cell to its entry in run.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest import stats, validity
from loadtest.cells import Cell, Settings
from loadtest.channels import OK, code_name
from loadtest.recorder import Part
from loadtest.samples import ABANDONED, UNUSABLE, Rows

_OUTCOME_NAMES = {ABANDONED: "ABANDONED", UNUSABLE: "UNUSABLE_REPLY"}


def in_window(rows: Rows, parts: Sequence[Part]) -> npt.NDArray[np.bool_]:
    """Which samples were sent inside the window of the worker that sent them; shape [n]."""
    inside = np.zeros(len(rows), bool)
    for part in parts:
        if part.start_ns is not None and part.end_ns is not None:
            sent = rows["sent_ns"]
            inside |= (rows["worker"] == part.worker) & (sent >= part.start_ns) & (sent < part.end_ns)
    return inside


def summarise(
    cell: Cell,
    settings: Settings,
    rows: Rows,
    parts: Sequence[Part],
    target: str,
    request_bytes: int,
    expected_accuracy: float | None,
) -> dict[str, Any]:
    """The cell's entry in run.json from all its samples, with the verdict on whether its numbers can be used.

    Counts and percentiles are over requests sent inside the window, latencies over successes only; a process whose
    window never opened has no share. `expected_accuracy` is the training record's, None where there is none.
    """
    counted = rows[in_window(rows, parts)]
    good = counted[counted["status"] == OK]
    lengths = [(part.end_ns - part.start_ns) / 1e9 for part in parts if part.start_ns is not None and part.end_ns is not None]
    window_s = sum(lengths) / len(lengths) if lengths else None
    outcomes = Counter(int(status) for status in counted["status"])
    images = int(good["items"].sum())
    versions = Counter[int]()
    for part in parts:
        versions.update(part.versions)
    entry: dict[str, Any] = {
        "id": cell.id,
        "model": cell.model,
        "model_version": max(versions, key=lambda version: versions[version]) if versions else None,
        "batch_size": cell.batch_size,
        "mode": "closed",
        "concurrency": cell.concurrency,
        "offered_per_s": None,
        "target": target,
        "warmup_s": settings.warmup_s,
        "window_s": window_s,
        "request_bytes": request_bytes,
        "sent": len(counted),
        "ok": outcomes[OK],
        "failed": len(counted) - outcomes[OK] - outcomes[ABANDONED],
        "abandoned": outcomes[ABANDONED],
        "errors": {_name(status): number for status, number in sorted(outcomes.items()) if status not in (OK, ABANDONED)},
        "requests_per_s": len(good) / window_s if window_s else None,
        "images_per_s": images / window_s if window_s else None,
        "response_ms": stats.latency_summary(good["done_ns"] - good["scheduled_ns"]),
        "service_ms": stats.latency_summary(good["done_ns"] - good["sent_ns"]),
        "server_ms": None,
        "accuracy": int(good["correct"].sum()) / images if images else None,
        "schedule_lag_ms": None,
        "client_cpu": max((part.client_cpu for part in parts if part.client_cpu is not None), default=None),
        "load_on_client": max((part.load_on_client for part in parts if part.load_on_client is not None), default=None),
        "windows": [
            {"worker": part.worker, "start_ns": part.start_ns, "end_ns": part.end_ns} for part in parts if part.start_ns is not None
        ],
    }
    entry["reasons"] = validity.reasons(entry, images, expected_accuracy, dict(versions), sum(part.users for part in parts))
    entry["valid"] = not entry["reasons"]
    entry["notes"] = validity.notes(entry, [part.problems for part in parts])
    return entry


def _name(status: int) -> str:
    return _OUTCOME_NAMES.get(status) or code_name(status)
