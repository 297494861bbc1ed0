"""`python -m serving`: serves exported models with the embedded server until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from serving.endpoint import Endpoint
from serving.errors import ServingError
from train.environment import usable_threads
from train.files import replacing

_LOOK_AROUND_S = 0.2
"""A signal that the system hands to another thread doesn't end the main thread's wait, and only the main thread can act on it."""


def arguments() -> argparse.ArgumentParser:
    """The command line. Flags that TensorFlow Serving has too are spelt as there."""
    parser = argparse.ArgumentParser(
        prog="python -m serving", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--models", type=Path, default=Path("artifacts/models"), metavar="DIR", help="folder of <model>/<version>")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every interface")
    parser.add_argument("--port", type=int, default=8500, help="gRPC port; 0 takes a free one")
    parser.add_argument("--rest_api_port", type=int, default=8501, help="REST port; 0 takes a free one, -1 leaves REST out")
    threads = usable_threads()
    parser.add_argument("--tensorflow_session_parallelism", type=int, default=threads, metavar="N", help="threads in and across operations")
    parser.add_argument("--grpc_max_threads", type=int, default=4 * threads, metavar="N", help="requests handled at the same time")
    parser.add_argument("--grace", type=float, default=10, metavar="S", help="seconds that running requests get when it is told to stop")
    parser.add_argument("--ready-file", type=Path, default=None, metavar="FILE", help="write the endpoint here, as JSON, when ready")
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop when standard input ends, with the process that started it")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="serving: %(message)s")
    options = arguments().parse_args(argv)
    if min(options.tensorflow_session_parallelism, options.grpc_max_threads) < 1:
        arguments().error("numbers of threads must be at least 1")
    if not (0 <= options.port < 2**16 and options.rest_api_port < 2**16):  # grpc would cut the number to 16 bits and use another
        arguments().error("ports end at 65535")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return serve(options, _settings(sys.argv[1:] if argv is None else argv), stop)
    except ServingError as problem:
        print(f"serving: {problem}", file=sys.stderr)
        return 2


def _settings(argv: list[str]) -> list[str]:
    """The flags that decide how the server answers, as the endpoint states them: not those of whoever started it."""
    settings, words = [], iter(argv)
    for word in words:
        if word == "--ready-file":
            next(words)
        elif not word.startswith(("--ready-file=", "--stop-with-stdin")):
            settings.append(word)
    return settings


def serve(options: argparse.Namespace, flags: list[str], stop: threading.Event) -> int:
    """Loads, opens the ports, answers until `stop` is set, drains. Raises ServingError if it can't start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from serving import embedded

    tf.get_logger().setLevel("ERROR")
    threads = {"session": options.tensorflow_session_parallelism, "grpc": options.grpc_max_threads}
    models = embedded.load(options.models, threads["session"])
    # TensorFlow leaves some 300,000 objects that live on; walking over them would stop the first requests for a tenth of a second.
    gc.collect()
    gc.freeze()
    rest_port = None if options.rest_api_port < 0 else options.rest_api_port
    server = embedded.Server(models, options.host, options.port, rest_port, threads["grpc"])
    endpoint = server.start(lambda address, rest_address: embedded.describe(models, flags, threads, address, rest_address))
    try:
        if options.ready_file:
            _announce(endpoint, options.ready_file)
        names = ", ".join(f"{name} version {servable.version}" for name, servable in models.items())
        print(f"serving: embedded server ready: gRPC {endpoint.address}, REST {endpoint.rest_address or 'off'}; {names}", flush=True)
        if options.stop_with_stdin:
            threading.Thread(target=_stop_at_end_of_stdin, args=(stop,), daemon=True).start()
        while not stop.wait(_LOOK_AROUND_S):
            pass
        print("serving: stopping", flush=True)
    finally:
        server.stop(options.grace)
    if options.ready_file:
        options.ready_file.unlink(missing_ok=True)
    return 0


def _announce(endpoint: Endpoint, ready_file: Path) -> None:
    try:
        with replacing(ready_file) as temporary:
            temporary.write_text(endpoint.to_json() + "\n")
    except OSError as problem:
        raise ServingError(f"can't write {ready_file} ({problem.strerror}): choose another --ready-file") from problem


def _stop_at_end_of_stdin(stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
