"""A recorded run for tests: samples drawn with numpy, written by `loadtest.samples`, summed up by `loadtest.stats`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

from loadtest import samples, stats

WARMUP_S, WINDOW_S, START_NS = 1.0, 4.0, 7_000_000_000_000
BATCHES, CONCURRENCIES = (1, 8, 32, 128), (1, 4)
ONE_IMAGE_MS = {"cnn2": 0.6, "cnn4": 1.5}
TRAIN_SECONDS = {"cnn2": 23.77, "cnn4": 52.82}


def closed_loop(cell: int, model: str, batch: int, concurrency: int, rng: np.random.Generator, failing: float = 0.0) -> samples.Rows:
    """Requests of one closed-loop cell: each user sends when its reply is in, two load processes, log-normal service times."""
    parts = []
    typical = ONE_IMAGE_MS[model] * (0.7 + 0.3 * batch) * (0.6 + 0.4 * concurrency) * 1e6
    for user in range(concurrency):
        start = START_NS + (user % 2) * 10**12  # each load process has a clock of its own
        count = int((WARMUP_S + WINDOW_S) * 1e9 / typical * 1.2) + 8
        took = (typical * rng.lognormal(0, 0.25, count)).astype(np.int64)
        took[rng.random(count) < 0.004] *= 6
        sent = start - int(WARMUP_S * 1e9) + np.concatenate([[0], np.cumsum(took)[:-1]])
        part = np.zeros(count, samples.DTYPE)
        part["cell"], part["worker"], part["scheduled_ns"], part["sent_ns"], part["done_ns"] = cell, user % 2, sent, sent, sent + took
        part["items"], part["correct"] = batch, rng.binomial(batch, 0.965, count)
        bad = rng.random(count) < failing
        part["status"][bad], part["correct"][bad] = 14, 0
        part["done_ns"][bad] = sent[bad] + 400_000
        parts.append(part[sent < start + int(WINDOW_S * 1e9)])
    return np.concatenate(parts)


def cell_of(rows: samples.Rows, cell: int, model: str, batch: int, concurrency: int | None = 1, **more: Any) -> dict[str, Any]:
    """The cell's entry of `run.json`, from its samples."""
    workers = sorted(set(rows["worker"].tolist())) or [0]
    windows = [{"worker": w, "start_ns": START_NS + w * 10**12, "end_ns": START_NS + w * 10**12 + int(WINDOW_S * 1e9)} for w in workers]
    inside = np.zeros(len(rows), bool)
    for window in windows:
        mine = rows["worker"] == window["worker"]
        inside |= mine & (rows["sent_ns"] >= window["start_ns"]) & (rows["sent_ns"] < window["end_ns"])
    counted = rows[inside]
    good = counted[counted["status"] == 0]
    abandoned = int(np.count_nonzero(counted["status"] == samples.ABANDONED))
    failed = len(counted) - len(good) - abandoned
    response, service = (stats.latency_summary(good["done_ns"] - good[name]) for name in ("scheduled_ns", "sent_ns"))
    entry = {
        "id": cell,
        "model": model,
        "model_version": 1,
        "batch_size": batch,
        "mode": "closed",
        "concurrency": concurrency,
        "offered_per_s": None,
        "target": None,
        "warmup_s": WARMUP_S,
        "window_s": WINDOW_S,
        "request_bytes": 3136 * batch + 48,
        "sent": len(counted),
        "ok": len(good),
        "failed": failed,
        "abandoned": abandoned,
        "errors": {"UNAVAILABLE": failed} if failed else {},
        "requests_per_s": len(good) / WINDOW_S,
        "images_per_s": int(good["items"].sum()) / WINDOW_S,
        "response_ms": response,
        "service_ms": service,
        "server_ms": None,
        "accuracy": float(good["correct"].sum() / good["items"].sum()) if len(good) else None,
        "schedule_lag_ms": None,
        "client_cpu": 0.34,
        "load_on_client": 0.7,
        "windows": windows,
        "valid": True,
        "reasons": [],
        "notes": [],
    }
    short = [name for name, q in stats.QUANTILES.items() if response[name] is None and name in ("p50", "p90", "p99") and len(good)]
    entry["notes"] = [f"{', '.join(short)} withheld: {len(good)} successes"] if short else []
    return {**entry, **more}


def training_record(model: str, steps: int = 1000) -> dict[str, Any]:
    """A training record of the contract's form."""
    curve = [
        {"step": step, "loss": 4.0 / (1 + step / 40), "accuracy": 1 - 0.9 / (1 + step / 60), "seconds": step / 42}
        for step in range(0, steps, 100)
    ]
    return {
        "schema": "timetoscore.training/1",
        "model": model,
        "conv_layers": int(model[3:]),
        "parameters": 3274634,
        "flops_per_image": 27767808,
        "recipe": {"steps": steps, "batch_size": 50, "optimizer": "adam", "seed": 0},
        "device": "cpu",
        "host": HOST,
        "train_seconds": TRAIN_SECONDS[model],
        "total_seconds": TRAIN_SECONDS[model] + 8,
        "images_per_s": 2103.4,
        "curve": curve,
        "test_accuracy": 0.9633,
        "weights_sha256": "87871c0e" * 8,
    }


HOST = {"cpu_model": "Test CPU 3000", "cpus": 2, "memory_bytes": 25276063744, "kernel": "Linux 6.18", "gpus": []}


def document(cells: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A `run.json` of these cells."""
    return {
        "schema": "timetoscore.run/1",
        "id": "20261201T120000Z-bench",
        "label": "bench",
        "started_at": "2026-12-01T12:00:00+00:00",
        "finished_at": "2026-12-01T12:03:00+00:00",
        "complete": True,
        "notes": [],
        "command": ["python", "-m", "loadtest", "--label", "a b"],
        "host": HOST,
        "software": {
            "python": "3.11.7",
            "tensorflow": "2.20.0",
            "grpcio": "1.85.3",
            "timetoscore": "0.1.0",
            "git_commit": None,
            "git_dirty": True,
        },
        "server": {
            "engine": "embedded",
            "version": "0.1.0",
            "device": "cpu",
            "flags": [],
            "batching": None,
            "threads": None,
            "address": "127.0.0.1:8500",
            "cpus": [0, 1],
        },
        "training": {model: training_record(model) for model in ONE_IMAGE_MS},
        "client": {
            "channel": "wire",
            "processes": 2,
            "cpus": [0, 1],
            "location": "host",
            "deadline_s": 10.0,
            "think_time_s": 0,
            "seed": 0,
            "floor": {"p50_us": 110.0, "p99_us": 190.0, "max_requests_per_s": 8200.0, "measured_at": "2026-12-01T12:00:00+00:00"},
        },
        "cells": cells,
        **copy.deepcopy(more),
    }


def save(folder: Path, run: dict[str, Any], rows: samples.Rows) -> Path:
    """Writes a run folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    samples.write(folder / "samples.parquet", [rows])
    return folder


def bench(folder: Path, seed: int = 1, **more: Any) -> Path:
    """A run of two models × four batch sizes × two concurrencies; one cell isn't valid, one has failures."""
    rng = np.random.default_rng(seed)
    parts, cells = [], []
    for model in ONE_IMAGE_MS:
        for batch in BATCHES:
            for concurrency in CONCURRENCIES:
                number = len(cells)
                failing = 0.06 if (model, batch, concurrency) == ("cnn4", 8, 4) else 0.0
                rows = closed_loop(number, model, batch, concurrency, rng, failing)
                entry = cell_of(rows, number, model, batch, concurrency)
                if (model, batch, concurrency) == ("cnn2", 1, 4):
                    entry |= {"valid": False, "reasons": ["client-bound: the busiest load process used 97 % of a CPU"], "client_cpu": 0.97}
                parts.append(rows)
                cells.append(entry)
    return save(folder, document(cells, **more), np.concatenate(parts))


def of_durations(
    folder: Path, ok_ms: list[float], failed_ms: list[float] | None = None, worker: list[int] | None = None, **more: Any
) -> Path:
    """A run of one cell whose window holds just these requests, one after another."""
    bad = failed_ms or []
    took = np.rint(np.array([*ok_ms, *bad]) * 1e6).astype(np.int64)
    rows = np.zeros(len(took), samples.DTYPE)
    rows["worker"] = worker if worker is not None else 0
    rows["sent_ns"] = START_NS + rows["worker"] * np.int64(10**12) + np.linspace(0, WINDOW_S * 0.9e9, len(took)).astype(np.int64)
    rows["scheduled_ns"], rows["done_ns"], rows["items"] = rows["sent_ns"], rows["sent_ns"] + took, more.get("batch_size", 1)
    rows["correct"] = rows["items"]
    rows["status"][len(ok_ms) :] = 14
    batch = more.pop("batch_size", 1)
    return save(folder, document([cell_of(rows, 0, "cnn2", batch) | more]), rows)
