"""`python -m loadtest`: measures a plan of cells and leaves a run folder."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()  # before anything that opens sockets is imported, as Locust's own command does

import argparse  # noqa: E402
import contextlib  # noqa: E402
import logging  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from loadtest.cells import Settings, plan  # noqa: E402
from loadtest.errors import LoadError  # noqa: E402
from loadtest.signals import interrupt_main_greenlet  # noqa: E402
from serving.errors import ServingError  # noqa: E402
from train.errors import TrainError  # noqa: E402


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,8,32") from None


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--host", default="127.0.0.1:8500", metavar="HOST:PORT", help="gRPC address of a server that runs")
    where.add_argument("--serve", action="store_true", help="start the embedded server for this run and stop it afterwards")
    parser.add_argument("--models", default="cnn2,cnn4", help="models, with commas between")
    parser.add_argument("--batch-sizes", type=_numbers, default="1,8,32,128", metavar="N,N", help="images in one request")
    parser.add_argument("--concurrency", type=_numbers, default="1,4", metavar="N,N", help="requests in flight, closed loop")
    parser.add_argument("--signature", default="serving_default", help="signature of the models")
    parser.add_argument("--warmup", type=float, default=2.0, metavar="S", help="seconds of load before each window that don't count")
    parser.add_argument("--window", type=float, default=10.0, metavar="S", help="seconds that are measured in each cell")
    parser.add_argument("--deadline", type=float, default=10.0, metavar="S", help="seconds after which a request without reply has failed")
    parser.add_argument("--ready-timeout", type=float, default=60.0, metavar="S", help="seconds to wait for the models to become AVAILABLE")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of the test images")
    parser.add_argument("--label", default="bench", help="ending of the run folder's name")
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="folder that gets the run folder (default: ARTIFACTS/runs)")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), metavar="DIR", help="where MNIST and the exported models lie")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0 all well, 1 failures or cells missing, 2 not measured at all."""
    logging.basicConfig(level=logging.WARNING, format="loadtest: %(message)s")
    options = arguments().parse_args(argv)
    interrupt_main_greenlet(signal.SIGINT, signal.SIGTERM)
    try:
        return run(options)
    except (LoadError, ServingError, TrainError) as problem:
        print(f"loadtest: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("loadtest: interrupted before anything was measured; no run folder is left", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Measures what the options say."""
    cells = plan([name for name in options.models.split(",") if name], options.batch_sizes, options.concurrency)
    settings = Settings(options.signature, options.warmup, options.window, options.deadline, options.seed)

    from loadtest import manifest
    from loadtest.channels import use_gevent
    from loadtest.collect import failed
    from loadtest.driver import run_plan
    from loadtest.progress import showing
    from loadtest.runs import RunWriter
    from serving.launch import embedded_server
    from train import mnist

    data = mnist.cached(options.artifacts / "data")
    models = options.artifacts / "models"
    writer = RunWriter(options.out or options.artifacts / "runs", options.label)
    with contextlib.ExitStack() as stack:
        stack.callback(writer.discard_unused)
        facts = manifest.Environment.gather()  # by subprocesses, so before the first channel
        server: Any = stack.enter_context(embedded_server(models)) if options.serve else options.host
        use_gevent()
        ticked, finished = stack.enter_context(showing(cells, settings))
        folder, outcome = run_plan(cells, settings, server, data, models, writer, facts, options.ready_timeout, ticked, finished)
    print(f"loadtest: run folder {folder}")
    for note in outcome.notes if not outcome.complete else ():
        print(f"loadtest: {note}", file=sys.stderr)
    return 0 if outcome.complete and not any(failed(entry) for entry in outcome.entries) else 1


if __name__ == "__main__":
    sys.exit(main())
