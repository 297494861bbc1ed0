"""Puts the shares of all load processes together and leaves the run folder: the master's part, or a single process's."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gevent

from loadtest import manifest
from loadtest.cells import Cell, Settings
from loadtest.recorder import Part
from loadtest.runs import RunWriter
from loadtest.samples import Rows
from loadtest.target import Target
from serving.endpoint import Endpoint

log = logging.getLogger(__name__)

_TICK_S = 0.05
_MARGIN_S = 5.0


class Collector:
    """The samples and shares of one cell, from `begin` to `finish`."""

    def __init__(self, writer: RunWriter, cell: Cell, settings: Settings, target: Target, request_bytes: int) -> None:
        """Collects into `writer`; `request_bytes` is the size of one request."""
        self.writer, self.cell, self.settings, self.target = writer, cell, settings, target
        self.request_bytes = request_bytes
        self.parts: dict[int, Part] = {}
        self.lost: list[int] = []

    def rows(self, rows: Rows, worker: int = 0) -> None:
        """Takes samples of a worker."""
        self.writer.add(rows, worker)

    def part(self, part: Part) -> None:
        """Takes the final share of a worker."""
        self.parts[part.worker] = part

    def wait(self, workers: Sequence[int], is_gone: Any) -> None:
        """Waits for the shares of `workers`; those that `is_gone(worker)` or that don't come in time are lost."""
        with gevent.Timeout(self.settings.deadline_s + _MARGIN_S, False):  # type: ignore[arg-type]  # False: it ends the block without a word
            while any(worker not in self.parts and not is_gone(worker) for worker in workers):
                gevent.sleep(_TICK_S)
        self.lost = [worker for worker in workers if worker not in self.parts]

    def entry(self, expected_accuracy: float | None) -> dict[str, Any]:
        """The cell's entry in run.json."""
        from loadtest.summary import summarise  # scipy takes a while to import; workers never need it

        parts = list(self.parts.values())
        entry = summarise(
            self.cell,
            self.settings,
            self.writer.rows(self.cell.id),
            parts,
            self.target.endpoint.address,
            self.request_bytes,
            expected_accuracy,
        )
        if self.lost:
            entry["reasons"].append(f"load process {', '.join(map(str, self.lost))} was lost: its last samples are missing")
            entry["valid"] = False
        return entry


def finish_run(
    writer: RunWriter,
    environment: manifest.Environment,
    endpoint: Endpoint,
    settings: Settings,
    entries: list[dict[str, Any]],
    records: dict[str, Any],
    processes: int,
    complete: bool,
    notes: Sequence[str],
    variables: Sequence[str],
) -> Path:
    """Writes the run folder and returns it."""
    head = manifest.head(environment, endpoint, settings, processes, records, _command())
    return writer.finish({"complete": complete, **head, "notes": [*manifest.notes(endpoint, variables), *notes], "cells": entries})


def _command() -> list[str]:
    """The command line that repeats this run, with programs by their names."""
    program, *arguments = sys.orig_argv
    if arguments and Path(arguments[0]).name == "locust":
        program, *arguments = arguments
    return [Path(program).name, *arguments]


def failed(entry: dict[str, Any]) -> bool:
    """Whether the cell had failures, for the exit status."""
    return bool(entry["failed"] or entry["abandoned"] or not entry["ok"])


def line(entry: dict[str, Any]) -> str:
    """A cell in one line, for a terminal or a log."""
    latencies = entry["response_ms"]
    parts = [f"{entry['model']} batch {entry['batch_size']} concurrency {entry['concurrency']}:"]
    if entry["requests_per_s"] is not None:
        parts.append(f"{entry['requests_per_s']:,.1f} requests/s, {entry['images_per_s']:,.0f} images/s,")
    shown = [f"{name} {latencies[name]:.2f} ms" for name in ("p50", "p99") if latencies[name] is not None]
    parts.append(", ".join([*shown, f"{entry['failed'] + entry['abandoned']} failed"]))
    if not entry["valid"]:
        parts.append(f"[not valid: {'; '.join(entry['reasons'])}]")
    return " ".join(parts)
