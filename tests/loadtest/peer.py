"""A gRPC server that speaks the serving API and misbehaves on demand, so that the load side's honesty can be tested."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field

import grpc
import numpy as np

from loadtest import messages
from train.mnist import Mnist, scale

Answer = bytes | grpc.StatusCode


@dataclass
class Peer:
    """A running peer: its address, how many Predict calls and connections it saw, and what it does with each call."""

    address: str
    behave: Callable[[Peer, bytes, int], Answer]
    labels: dict[bytes, int]
    calls: int = 0
    connections: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, raw: bytes, version: int = 1, wrong: bool = False) -> bytes:
        """The right answer to a request, or one with every label wrong."""
        tensor = messages.PredictRequest.FromString(raw).inputs["images"]
        rows = np.frombuffer(tensor.tensor_content, "<f4").reshape(-1, 784)
        classes = [(self.labels[row.tobytes()] + wrong) % 10 for row in rows]
        response = messages.PredictResponse()
        response.model_spec.name, response.model_spec.version.value = "cnn2", version
        output = response.outputs["classes"]
        output.dtype = messages.DT_INT64
        output.tensor_shape.dim.add().size = len(classes)
        output.int64_val.extend(classes)
        return response.SerializeToString()


def well(peer: Peer, raw: bytes, _number: int) -> Answer:
    """Answers rightly at once."""
    return peer.reply(raw)


def after(seconds: float) -> Callable[[Peer, bytes, int], Answer]:
    """Answers rightly after a while."""

    def behave(peer: Peer, raw: bytes, _number: int) -> Answer:
        time.sleep(seconds)
        return peer.reply(raw)

    return behave


@contextlib.contextmanager
def running(
    data: Mnist, behave: Callable[[Peer, bytes, int], Answer] = well, port: int = 0, threads: int = 64, ready_after_s: float = 0
) -> Iterator[Peer]:
    """Runs a peer whose one model is cnn2; its model becomes AVAILABLE `ready_after_s` after the port opens."""
    images = scale(data.test_images)
    labels = {image.tobytes(): int(label) for image, label in zip(images, data.test_labels, strict=True)}
    server = grpc.server(futures.ThreadPoolExecutor(threads), options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
    peer = Peer("", behave, labels)
    opened = time.monotonic()

    def predict(raw: bytes, context: grpc.ServicerContext) -> bytes:
        with peer.lock:
            peer.calls += 1
            number = peer.calls
            peer.connections.add(context.peer())
        answer = peer.behave(peer, raw, number)
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, f"injected {answer.name}")
        return answer

    def status(raw: bytes, context: grpc.ServicerContext) -> bytes:
        if messages.GetModelStatusRequest.FromString(raw).model_spec.name != "cnn2":
            context.abort(grpc.StatusCode.NOT_FOUND, "Could not find any versions of model")
        response = messages.GetModelStatusResponse()
        ready = time.monotonic() - opened >= ready_after_s
        response.model_version_status.add(version=1, state=messages.AVAILABLE if ready else 20)
        return response.SerializeToString()

    def metadata(_raw: bytes, _context: grpc.ServicerContext) -> bytes:
        signatures = messages.SignatureDefMap()
        definition = signatures.signature_def["serving_default"]
        for tensor, dtype, sizes in ((definition.inputs["images"], 1, (-1, 784)), (definition.outputs["classes"], 9, (-1,))):
            tensor.dtype = dtype
            for size in sizes:
                tensor.tensor_shape.dim.add().size = size
        response = messages.GetModelMetadataResponse()
        response.metadata["signature_def"].value = signatures.SerializeToString()
        return response.SerializeToString()

    handler = grpc.unary_unary_rpc_method_handler
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService", {"Predict": handler(predict), "GetModelMetadata": handler(metadata)}
            ),
            grpc.method_handlers_generic_handler("tensorflow.serving.ModelService", {"GetModelStatus": handler(status)}),
        )
    )
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    peer.address = f"127.0.0.1:{bound}"
    server.start()
    try:
        yield peer
    finally:
        server.stop(0).wait()
