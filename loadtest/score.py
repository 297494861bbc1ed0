"""The locustfile: `locust -f loadtest/score.py --model cnn2 --batch-size 8 -u 4 -t 30s --headless`.

Every start and stop of a test leaves one run folder with one cell, whether from the web page, headless, in several
processes or on several machines. Locust's own options all work; `--host` is the server's gRPC address.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from locust import events

from loadtest.distributed import Distributed
from loadtest.errors import LoadError
from loadtest.signals import interrupt_main_greenlet
from loadtest.user import ScoringUser


class Scorer(ScoringUser):
    """A user of the server at `--host`."""

    host = "127.0.0.1:8500"


@events.init_command_line_parser.add_listener
def add_arguments(parser: Any) -> None:
    """Adds the benchmark's own options to Locust's."""
    own = parser.add_argument_group("timetoscore", "What is scored, and where the run folder goes")
    own.add_argument("--model", default="cnn2", help="model to score")
    own.add_argument("--batch-size", type=int, default=1, help="images in one request")
    own.add_argument("--signature", default="serving_default", help="signature of the model")
    own.add_argument("--warmup", type=float, default=2.0, help="seconds of load after all users are there that don't count")
    own.add_argument("--deadline", type=float, default=10.0, help="seconds after which a request without reply has failed")
    own.add_argument("--ready-timeout", type=float, default=60.0, help="seconds to wait for the model to become AVAILABLE")
    own.add_argument("--seed", type=int, default=0, help="seed of the order of the test images")
    own.add_argument("--label", default="score", help="ending of the run folder's name")
    own.add_argument("--out", default="artifacts/runs", help="folder that gets the run folder")
    own.add_argument("--artifacts", default="artifacts", help="where MNIST and the exported models lie")


@events.init.add_listener
def set_up(environment: Any, **_: Any) -> None:
    """Hangs the benchmark onto Locust's events, in every process; wrong options end it here."""
    interrupt_main_greenlet(signal.SIGINT)  # Locust sees to SIGTERM itself
    try:
        Distributed(environment, Scorer.host).attach()
    except LoadError as problem:
        sys.stdout.flush()
        print(f"score: {problem}", file=sys.stderr)
        sys.exit(2)
