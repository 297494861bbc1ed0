"""Requests made once from real test images before the clock starts, and the check of their replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest import messages
from loadtest.errors import LoadError
from loadtest.target import Target
from train import mnist

_CLASSES = 10


@dataclass(slots=True)
class Payload:
    """A serialised PredictRequest, the labels of its images, and the last reply that was decoded with what it held."""

    request: bytes
    labels: npt.NDArray[np.uint8]
    known_reply: bytes | None = field(default=None, repr=False)
    known: tuple[int, int] | None = None


class UnusableReplyError(ValueError):
    """A reply that came with status OK and is not an answer to the request."""


def build(target: Target, data: mnist.Mnist, batch_size: int, seed: int) -> list[Payload]:
    """Requests of `batch_size` test images each, in an order drawn from `seed`, every one different.

    Together they hold each test image once, but for those that would leave the last request short. Only the test split is
    used: a model knows its training images. Raises LoadError where the model takes other images or the batch is too large.
    """
    images = mnist.scale(data.test_images)
    if target.image_size != images.shape[1]:
        raise LoadError(f"{target.model} takes {target.image_size} values an image, MNIST has {images.shape[1]}")
    if not 1 <= batch_size <= len(images):
        raise LoadError(f"batch size {batch_size}: give a number from 1 to {len(images):,}, the number of test images")
    order = np.random.default_rng(seed).permutation(len(images))
    starts = range(0, len(images) - batch_size + 1, batch_size)
    return [_payload(target, images, data.test_labels, order[start : start + batch_size]) for start in starts]


def _payload(target: Target, images: npt.NDArray[np.float32], labels: npt.NDArray[np.uint8], chosen: npt.NDArray[np.int64]) -> Payload:
    request = messages.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = target.model, target.signature
    tensor = request.inputs[target.input_name]
    tensor.dtype = messages.DT_FLOAT
    for size in (len(chosen), images.shape[1]):
        tensor.tensor_shape.dim.add().size = size
    tensor.tensor_content = np.ascontiguousarray(images[chosen], "<f4").tobytes()
    return Payload(request.SerializeToString(), labels[chosen])


def check(payload: Payload, reply: bytes, output_name: str) -> tuple[int, int]:
    """How many labels of a reply are right, and the version that answered. Raises UnusableReplyError.

    A reply with the very bytes of the last one decoded for this request is not decoded again: servers repeat themselves,
    and decoding takes the client's time.
    """
    if payload.known is not None and reply == payload.known_reply:
        return payload.known
    try:
        response = messages.PredictResponse.FromString(reply)
    except Exception as problem:  # protobuf's own error class differs by implementation
        raise UnusableReplyError("the reply is not a PredictResponse") from problem
    if output_name not in response.outputs:
        raise UnusableReplyError(f"the reply has no output {output_name}")
    classes = _classes(response.outputs[output_name], len(payload.labels))
    payload.known = int((classes == payload.labels).sum()), response.model_spec.version.value
    payload.known_reply = reply
    return payload.known


def _classes(tensor: Any, count: int) -> npt.NDArray[Any]:
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype == messages.DT_INT64 and shape == [count]:
        return _values(tensor, "int64_val", "<i8", shape)
    if tensor.dtype == messages.DT_FLOAT and shape == [count, _CLASSES]:
        logits = _values(tensor, "float_val", "<f4", shape)
        if not np.isfinite(logits).all():
            raise UnusableReplyError("the reply holds values that are not finite")
        return np.asarray(logits.argmax(axis=1))
    raise UnusableReplyError(f"the reply's tensor has dtype {tensor.dtype} and shape {shape}, for {count} images")


def _values(tensor: Any, typed_field: str, raw_dtype: str, shape: list[int]) -> npt.NDArray[Any]:
    """The tensor's values, whether they came as raw content or as typed values; both have to be complete."""
    if tensor.tensor_content:
        values = tensor.tensor_content
        if len(values) != np.dtype(raw_dtype).itemsize * int(np.prod(shape)):
            raise UnusableReplyError("the reply's tensor content has another length than its shape")
        return np.frombuffer(values, raw_dtype).reshape(shape)
    typed = np.array(getattr(tensor, typed_field), raw_dtype)
    if typed.size != int(np.prod(shape)):
        raise UnusableReplyError("the reply's tensor has fewer or more values than its shape")
    return typed.reshape(shape)
