"""The cells of a run as a flat table: one row each, units in the column names, empty where there is no value."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_PLAIN = [
    "id",
    "model",
    "model_version",
    "batch_size",
    "mode",
    "concurrency",
    "offered_per_s",
    "target",
    "warmup_s",
    "window_s",
    "request_bytes",
    "sent",
    "ok",
    "failed",
    "abandoned",
    "requests_per_s",
    "images_per_s",
    "accuracy",
    "client_cpu",
    "load_on_client",
    "valid",
]
_LATENCIES = ("mean", "min", "max", "p50", "p90", "p95", "p99", "p999")
COLUMNS = [
    *_PLAIN[:-1],
    *(f"{kind}_{name}_ms" for kind in ("response", "service") for name in _LATENCIES),
    "schedule_lag_p99_ms",
    *(f"server_{name}_ms" for name in ("request_mean", "runtime_mean", "queue_mean")),
    "valid",
    "errors",
    "reasons",
]
"""The table's columns. There is no row of totals: adding up a column must not count anything twice."""


def row(cell: Mapping[str, Any]) -> dict[str, object]:
    """One cell of run.json as a row of `COLUMNS`."""
    flat: dict[str, object] = {name: cell.get(name) for name in _PLAIN}
    for kind in ("response", "service"):
        latencies = cell.get(f"{kind}_ms") or {}
        flat.update({f"{kind}_{name}_ms": latencies.get(name) for name in _LATENCIES})
    flat["schedule_lag_p99_ms"] = (cell.get("schedule_lag_ms") or {}).get("p99")
    server = cell.get("server_ms") or {}
    flat.update({f"server_{name}_ms": server.get(name) for name in ("request_mean", "runtime_mean", "queue_mean")})
    flat["valid"] = "yes" if cell.get("valid") else "no"
    flat["errors"] = "; ".join(f"{code} {number}" for code, number in (cell.get("errors") or {}).items())
    flat["reasons"] = "; ".join(cell.get("reasons") or ())
    return flat


def write_csv(path: Path, cells: Iterable[Mapping[str, Any]]) -> None:
    """Writes the table of `cells` to a new file. Raises FileExistsError if it is there."""
    with path.open("x", newline="", encoding="utf-8") as target:
        writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row(cell) for cell in cells)
