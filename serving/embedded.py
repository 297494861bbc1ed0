"""The embedded server: TensorFlow Serving's API over the same SavedModels, in Python, for where no container engine is.

It is slower than TensorFlow Serving and never called by its name. Ports open only when every model is loaded and warmed.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from serving import answers, rest
from serving.answers import Models, Refusal
from serving.endpoint import DESCRIPTION_KEY, Endpoint
from serving.errors import ServingError
from serving.servable import Servable

log = logging.getLogger(__name__)

_TEXT_LIMIT = 1024  # where TensorFlow Serving cuts an error's text
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # or a second server would silently share the port
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Clients that ping often are common; grpc's default answers them with GOAWAY after some minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


def load(models_folder: Path, threads: int) -> dict[str, Servable]:
    """The newest version of every model below `models_folder`, loaded and warmed. Raises ServingError if one can't be served."""
    if not models_folder.is_dir():
        raise ServingError(f"no models at {models_folder}: run 'make train export' first, or give --models DIR")
    found = {child.name: newest for child in sorted(models_folder.iterdir()) if (newest := _newest(child))}
    if not found:
        raise ServingError(f"no exported version below {models_folder}: run 'make export' first")
    models = {}
    for name, folder in found.items():
        servable = Servable(name, folder, threads)
        warmed = servable.warm_up(folder, lambda request, model=servable: answers.predict({model.name: model}, request))
        log.info("%s version %d loaded, %d warm-up requests", name, servable.version, warmed)
        models[name] = servable
    return models


def _newest(folder: Path) -> Path | None:
    numbers = [child for child in folder.iterdir() if child.name.isascii() and child.name.isdigit()] if folder.is_dir() else []
    numbers = [child for child in numbers if int(child.name) < 2**63]  # a version is an int64
    return max(numbers, key=lambda child: int(child.name), default=None)


def _resolved(host: str) -> str:
    # One address: of a name's several, grpc is content with those that are free, and would share a busy port by halves.
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise ServingError(f"can't listen on {host} ({problem}): give --host an address of this machine") from problem
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


class Server:
    """The running server: both ports over loaded models."""

    def __init__(self, models: Models, host: str, port: int, rest_port: int | None, handler_threads: int) -> None:
        """Binds both ports; port 0 takes a free one, `rest_port` None leaves REST out. Raises ServingError if a port is taken."""
        self._handlers = futures.ThreadPoolExecutor(handler_threads, thread_name_prefix="grpc")
        self._grpc = grpc.server(self._handlers, options=_OPTIONS)
        self._description = b""
        self._grpc.add_generic_rpc_handlers(tuple(self._services(models)))
        ip = _resolved(host)
        shown = f"[{ip}]" if ":" in ip else ip
        try:
            bound = self._grpc.add_insecure_port(f"{shown}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise ServingError(f"can't listen on {shown}:{port} for gRPC: stop what uses it or give --port")
        self.address = f"{shown}:{bound}"
        self._rest = None if rest_port is None else rest.open_port(ip, rest_port, models)
        self.rest_address = None if self._rest is None else f"{shown}:{self._rest.server_address[1]}"

    def _services(self, models: Models) -> list[grpc.GenericRpcHandler]:
        def method(message: Any, answer: Callable[[Models, Any], Any], describe: bool = False) -> grpc.RpcMethodHandler[bytes, bytes]:
            def handle(raw: bytes, context: grpc.ServicerContext) -> bytes:
                if describe:
                    context.send_initial_metadata(((DESCRIPTION_KEY, self._description),))
                try:
                    request = message.FromString(raw)
                except Exception:
                    context.abort(grpc.StatusCode.INTERNAL, "")
                try:
                    reply: bytes = answer(models, request).SerializeToString()
                except Refusal as refusal:
                    text = refusal.text
                    context.abort(refusal.code, text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "...TRUNCATED")
                return reply

            return grpc.unary_unary_rpc_method_handler(handle)

        return [
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService",
                {
                    "Predict": method(predict_pb2.PredictRequest, answers.predict),
                    "GetModelMetadata": method(get_model_metadata_pb2.GetModelMetadataRequest, answers.metadata),
                },
            ),
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.ModelService",
                {"GetModelStatus": method(get_model_status_pb2.GetModelStatusRequest, answers.status, describe=True)},
            ),
        ]

    def start(self, describe: Callable[[str, str | None], Endpoint]) -> Endpoint:
        """Begins to answer. `describe(address, rest_address)` makes the endpoint that the server then tells its clients."""
        endpoint = describe(self.address, self.rest_address)
        self._description = endpoint.to_json().encode()
        self._grpc.start()
        if self._rest is not None:
            threading.Thread(target=self._rest.serve_forever, name="rest", daemon=True).start()
        return endpoint

    def stop(self, grace_s: float) -> None:
        """Takes no new requests, lets those that run finish for up to `grace_s` seconds, then closes."""
        self._grpc.stop(grace_s).wait()
        if self._rest is not None:
            self._rest.shutdown()
            self._rest.server_close()
        self._handlers.shutdown(wait=False, cancel_futures=True)


def describe(models: Models, flags: list[str], threads: dict[str, int], address: str, rest_address: str | None) -> Endpoint:
    """The endpoint of an embedded server, with the devices that its sessions really have."""
    gpus = sorted({name for servable in models.values() for name in servable.devices if ":GPU:" in name})
    return Endpoint(
        address=address,
        engine="embedded",
        version=f"timetoscore {importlib.metadata.version('timetoscore')}, TensorFlow {tf.__version__}",
        device="gpu" if gpus else "cpu",
        device_evidence=f"the sessions list {', '.join(gpus)}" if gpus else "the sessions list CPU devices only",
        flags=flags,
        batching={"enabled": False},
        threads=threads,
        cpus=sorted(os.sched_getaffinity(0)),
        rest_address=rest_address,
    )
