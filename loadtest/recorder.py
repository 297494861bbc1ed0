"""What one load process remembers of one cell: every request's times, and the window that counts.

The part of the load process that runs for every request, so it only appends integers to arrays: about half a
microsecond, and 32 bytes of memory until the rows are taken.
"""

from __future__ import annotations

import os
import time
from array import array
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import psutil

from loadtest.samples import ABANDONED, DTYPE, NOT_DONE, Rows

_KINDS_OF_PROBLEM = 32


@dataclass(frozen=True)
class Part:
    """One process's share in a cell: its window on its own clock, what the window cost, who answered."""

    worker: int
    start_ns: int | None
    end_ns: int | None
    users: int
    client_cpu: float | None
    load_on_client: float | None
    versions: dict[int, int] = field(default_factory=dict)
    problems: dict[str, int] = field(default_factory=dict)

    def to_message(self) -> dict[str, Any]:
        """The part as Locust's messages carry it; keys that are numbers become pairs."""
        return {**asdict(self), "versions": list(self.versions.items())}

    @classmethod
    def from_message(cls, message: dict[str, Any], worker: int) -> Part:
        """The part that `to_message` packed, numbered as the master counts its workers."""
        return cls(**{**message, "worker": worker, "versions": dict(message["versions"])})


class Recorder:
    """Collects samples; `open_window` and `close_window` bound the part of them that counts."""

    def __init__(self, items: int, cell: int = 0) -> None:
        """For requests of `items` images each, of the cell numbered `cell`."""
        self._items, self._cell = items, cell
        self._sent, self._done, self._status, self._correct = array("q"), array("q"), array("b"), array("i")
        self._versions: dict[int, int] = {}
        self._problems: dict[str, int] = {}
        self._start: tuple[int, float, float] | None = None
        self._end: tuple[int, float, float] | None = None
        self.in_flight = 0
        self.users = 0

    @property
    def window_is_open(self) -> bool:
        """Whether the measured part has begun and not ended."""
        return self._start is not None and self._end is None

    def add(self, sent_ns: int, done_ns: int, status: int, correct: int, version: int) -> None:
        """One request that got an outcome. `correct` and `version` count for status 0 only."""
        self._sent.append(sent_ns)
        self._done.append(done_ns)
        self._status.append(status)
        self._correct.append(correct)
        if not status:
            self._versions[version] = self._versions.get(version, 0) + 1

    def abandon(self, sent_ns: int) -> None:
        """One request that was still running when the drain ended."""
        self._sent.append(sent_ns)
        self._done.append(NOT_DONE)
        self._status.append(ABANDONED)
        self._correct.append(0)

    def problem(self, text: str) -> None:
        """Remembers the text of a failure, for the run's notes; the first kinds are kept."""
        if text in self._problems or len(self._problems) < _KINDS_OF_PROBLEM:
            self._problems[text] = self._problems.get(text, 0) + 1

    def open_window(self) -> None:
        """From now on requests count. A second call is ignored."""
        if self._start is None:
            self._versions.clear()
            self._start = _now()

    def close_window(self) -> None:
        """Requests sent from now on don't count. A second call is ignored."""
        if self._start is not None and self._end is None:
            self._end = _now()

    def take(self) -> Rows:
        """The rows since the last call; the recorder forgets them."""
        columns = self._sent, self._done, self._status, self._correct
        self._sent, self._done, self._status, self._correct = array("q"), array("q"), array("b"), array("i")
        rows = np.zeros(len(columns[0]), DTYPE)
        rows["cell"], rows["items"] = self._cell, self._items
        for name, column in zip(("sent_ns", "done_ns", "status", "correct"), columns, strict=True):
            rows[name] = column
        rows["scheduled_ns"] = rows["sent_ns"]
        return rows

    def part(self, worker: int) -> Part:
        """This process's share, once the window is closed; one that never opened has no bounds."""
        if self._start is None or self._end is None:
            return Part(worker, None, None, self.users, None, None, dict(self._versions), dict(self._problems))
        seconds = (self._end[0] - self._start[0]) / 1e9
        own, machine = self._end[1] - self._start[1], self._end[2] - self._start[2]
        return Part(
            worker,
            self._start[0],
            self._end[0],
            self.users,
            own / seconds if seconds > 0 else None,
            machine / (os.cpu_count() or 1) / seconds if seconds > 0 else None,
            dict(self._versions),
            dict(self._problems),
        )


def _now() -> tuple[int, float, float]:
    """Monotonic ns, CPU seconds of this process, busy CPU seconds of the machine."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is counted in user time already
    busy = sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    own = time.process_time()
    return time.monotonic_ns(), own, busy
