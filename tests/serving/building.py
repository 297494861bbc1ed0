"""Requests, calls and tiny models that several tests of the embedded server are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2, prediction_log_pb2

Code = grpc.StatusCode
Images = npt.NDArray[np.float32]

PREDICT = "PredictionService/Predict"
METADATA = "PredictionService/GetModelMetadata"
STATUS = "ModelService/GetModelStatus"
PATIENCE_S = 60
v1 = tf.compat.v1
WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"

Graph = Callable[[], tuple[dict[str, Any], dict[str, Any]]]
X = np.ones((2, 3), np.float32)


def connect(address: str, *options: tuple[str, Any]) -> grpc.Channel:
    """A channel with a connection of its own, that takes messages of any length and no proxy."""
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(address, [*limits, ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), *options])


def tensor(*shape: int, dtype: Any = tf.float32, content: bytes = b"", **values: list) -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=dtype if isinstance(dtype, int) else dtype.as_datatype_enum, tensor_content=content, **values)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    return proto


def zeros(*shape: int, dtype: str = "<f4") -> tensor_pb2.TensorProto:
    return tf.make_tensor_proto(np.zeros(shape, dtype))


def of(images: Images) -> tensor_pb2.TensorProto:
    return tensor(*images.shape, content=images.tobytes())


def name(request: Any, model: str = "cnn2", version: int | None = None, label: str | None = None, signature: str = "") -> Any:
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    if label is not None:
        request.model_spec.version_label = label
    return request


def scoring(images: tensor_pb2.TensorProto | None = None, keep: tuple[str, ...] = (), inputs: Any = (), **spec: Any) -> Any:
    """A PredictRequest of `images`, by default one black image, or of `inputs` by alias."""
    request = name(predict_pb2.PredictRequest(output_filter=keep), **spec)
    for alias, value in dict(inputs or {"images": images or zeros(1, 784)}).items():
        request.inputs[alias].CopyFrom(value)
    return request


def asking(*fields: str, **spec: Any) -> Any:
    return name(get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields), **spec)


def status_of(**spec: Any) -> Any:
    return name(get_model_status_pb2.GetModelStatusRequest(), **spec)


def without_spec(request: Any) -> Any:
    request.ClearField("model_spec")
    return request


def call(channel: grpc.Channel, method: str, message: Any, timeout: float = PATIENCE_S) -> bytes:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(f"/tensorflow.serving.{method}")(raw, timeout=timeout)


def predict(channel: grpc.Channel, *arguments: Any, **options: Any) -> predict_pb2.PredictResponse:
    return predict_pb2.PredictResponse.FromString(call(channel, PREDICT, scoring(*arguments, **options)))


def logits(response: predict_pb2.PredictResponse) -> Images:
    return tf.make_ndarray(response.outputs["logits"])


def refusal(channel: grpc.Channel, method: str, message: Any, timeout: float = PATIENCE_S) -> tuple[Code, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, method, message, timeout)
    return refused.value.code(), refused.value.details()


def outcome(channel: grpc.Channel, method: str, message: Any) -> Code:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    return channel.unary_unary(f"/tensorflow.serving.{method}").future(raw, timeout=PATIENCE_S).code()


def write_model(version: Path, graph: Graph) -> Path:
    """A SavedModel of a graph without variables: `graph` makes its inputs and outputs, by alias."""
    with tf.Graph().as_default(), v1.Session() as session:
        inputs, outputs = graph()
        v1.saved_model.simple_save(session, str(version), inputs, outputs)
    return version


def times(factor: float) -> Graph:
    """A graph that multiplies `x` float32 [-1, 3] into `y`, so that the answer tells which version gave it."""

    def graph() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        return {"x": x}, {"y": x * factor}

    return graph


def request_for(model: str, **inputs: Any) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def add_warm_up(version: Path, *requests: predict_pb2.PredictRequest) -> None:
    (version / WARMUP).parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(version / WARMUP)) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())
