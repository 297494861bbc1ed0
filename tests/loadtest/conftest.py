from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loadtest import samples

PROJECT = Path(__file__).parents[2]
LOCUST = Path(sys.executable).with_name("locust")


@dataclass
class Ran:
    """A finished load command: exit status, what it printed, and the run folder it left, if any."""

    status: int
    output: str
    folder: Path | None

    @property
    def run(self) -> dict:
        assert self.folder is not None, self.output
        return json.loads((self.folder / "run.json").read_text())

    @property
    def cell(self) -> dict:
        (cell,) = self.run["cells"]
        return cell

    @property
    def rows(self) -> samples.Rows:
        assert self.folder is not None, self.output
        return samples.read(self.folder / "samples.parquet")


@dataclass
class Load:
    """Starts the two load commands against a server, with run folders in a place of their own."""

    artifacts: Path
    out: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def locust(self, address: str, *options: str, users: int = 2, seconds: float = 3, env: dict[str, str] | None = None) -> Ran:
        headless = ["--headless", "-u", str(users), "-r", str(users), "-t", f"{seconds}s", "--warmup", "0.5"]
        return self._finish(self.popen([str(LOCUST), "-f", "loadtest/score.py", *headless, *self._where(address), *options], env))

    def plan(self, address: str, *options: str) -> Ran:
        return self._finish(self.popen([sys.executable, "-m", "loadtest", *self._where(address), *options]))

    def _where(self, address: str) -> list[str]:
        return ["--host", address, "--artifacts", str(self.artifacts), "--out", str(self.out)]

    def popen(self, command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env={**os.environ, **(env or {})},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def stop_all(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _finish(self, process: subprocess.Popen[str], timeout: float = 120) -> Ran:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return Ran(process.returncode, output, self.newest())

    finish = _finish

    def newest(self) -> Path | None:
        latest = self.out / "latest"
        return latest.resolve() if latest.exists() else None


@pytest.fixture
def load(data_folder: Path, tmp_path: Path) -> Iterator[Load]:
    load = Load(data_folder, tmp_path / "runs")
    yield load
    load.stop_all()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
