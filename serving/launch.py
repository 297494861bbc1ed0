"""Starting the embedded server as a process of its own, for a benchmark or a test, and stopping it again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from serving.endpoint import Endpoint
from serving.errors import ServingError

READY_WITHIN_S = 180.0
_POLL_S = 0.05


@contextlib.contextmanager
def embedded_server(models: Path, flags: Sequence[str] = (), ready_within_s: float = READY_WITHIN_S) -> Iterator[Endpoint]:
    """Runs `python -m serving` on free loopback ports, yields its endpoint once it is ready, stops it at the end.

    The server also ends with this process, however that ends. Raises ServingError, with the server's own last words, if
    it doesn't get ready.
    """
    with tempfile.TemporaryDirectory(prefix="timetoscore-") as folder, (Path(folder) / "log").open("w+b") as log:
        ready = Path(folder) / "endpoint.json"
        command = [sys.executable, "-m", "serving", f"--models={models}", "--port=0", "--rest_api_port=0", *flags]
        process = subprocess.Popen([*command, f"--ready-file={ready}", "--stop-with-stdin"], stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + ready_within_s
            while not ready.exists():
                if process.poll() is not None:
                    raise ServingError(_last_words(log.name, f"the embedded server ended with status {process.returncode}"))
                if time.monotonic() > deadline:
                    raise ServingError(_last_words(log.name, f"the embedded server was not ready within {ready_within_s:.0f} s"))
                time.sleep(_POLL_S)
            yield Endpoint.from_json(ready.read_text())
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_words(log: str, what: str) -> str:
    lines = [line for line in Path(log).read_text(errors="replace").splitlines() if line.strip()]
    own = [line.removeprefix("serving: ") for line in lines if line.startswith("serving: ")]
    return f"{what}: {(own or lines or ['it said nothing'])[-1]}"
