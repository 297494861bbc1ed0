"""What the embedded server answers over gRPC. Codes and texts are those of TensorFlow Serving 2.17.1, except where a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2, prediction_service_pb2_grpc

from serving.endpoint import Endpoint
from tests.serving.building import (
    METADATA,
    PATIENCE_S,
    PREDICT,
    STATUS,
    Code,
    Images,
    asking,
    call,
    connect,
    logits,
    name,
    of,
    outcome,
    predict,
    refusal,
    scoring,
    status_of,
    tensor,
    without_spec,
    zeros,
)
from train import mnist
from train.model import build
from train.recipe import predict_logits
from train.record import weights_path


@pytest.fixture(scope="module")
def channel(server: Endpoint) -> Iterator[grpc.Channel]:
    with connect(server.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def images(data: mnist.Mnist) -> Images:
    return mnist.scale(data.test_images[:2048])


@pytest.fixture(scope="module")
def keras(artifacts: Path, data: mnist.Mnist) -> Callable[[str, int], Images]:
    """Logits of the first test images by the trained Keras model itself, not the export."""

    def score(model: str, count: int) -> Images:
        network = build(int(model[3:]))
        network.load_weights(weights_path(artifacts / "training", model))
        return predict_logits(network, data.test_images[:count])

    return score


# Answers


@pytest.mark.parametrize("model", ["cnn2", "cnn4"])
def test_real_images_in_any_batch_size_get_the_answers_of_keras(
    channel: grpc.Channel, images: Images, keras: Callable[[str, int], Images], model: str
) -> None:
    expected = keras(model, 128)
    for size in (1, 8, 32, 128):
        response = predict(channel, of(images[:size]), model=model)
        assert logits(response).shape == (size, 10)
        assert np.allclose(logits(response), expected[:size], rtol=0, atol=1e-4)
        assert list(response.outputs["classes"].int64_val) == expected[:size].argmax(axis=1).tolist()


def test_a_message_beyond_grpcs_default_limit_is_answered_whole(
    channel: grpc.Channel, images: Images, keras: Callable[[str, int], Images]
) -> None:
    request = scoring(of(images))
    assert request.ByteSize() > 6_400_000
    response = predict_pb2.PredictResponse.FromString(call(channel, PREDICT, request))
    assert np.allclose(logits(response), keras("cnn2", 2048), rtol=0, atol=1e-4)


def test_the_generated_stub_is_answered(server: Endpoint, images: Images) -> None:
    with grpc.insecure_channel(server.address) as plain:
        response = prediction_service_pb2_grpc.PredictionServiceStub(plain).Predict(scoring(of(images[:4])), PATIENCE_S)
    assert logits(response).shape == (4, 10)


@pytest.mark.parametrize(
    "asked", [{}, {"signature": "serving_default"}, {"version": 1}], ids=["nothing but the name", "its signature", "its version"]
)
def test_the_reply_names_model_version_and_signature_that_answered(channel: grpc.Channel, asked: dict[str, Any]) -> None:
    spec = predict(channel, model="cnn4", **asked).model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("cnn4", 1, "serving_default")


def test_outputs_come_as_typed_values(channel: grpc.Channel) -> None:
    outputs = predict(channel, zeros(3, 784)).outputs
    assert set(outputs) == {"logits", "classes"}
    assert (outputs["logits"].dtype, len(outputs["logits"].float_val)) == (tf.float32.as_datatype_enum, 30)
    assert (outputs["classes"].dtype, len(outputs["classes"].int64_val)) == (tf.int64.as_datatype_enum, 3)
    assert not any(proto.tensor_content for proto in outputs.values())
    assert [dim.size for dim in outputs["logits"].tensor_shape.dim] == [3, 10]
    assert [dim.size for dim in outputs["classes"].tensor_shape.dim] == [3]


@pytest.mark.parametrize("keep", [("logits",), ("classes",), ("logits", "classes"), ("classes", "logits")])
def test_an_output_filter_leaves_only_what_it_names(channel: grpc.Channel, keep: tuple[str, ...]) -> None:
    assert set(predict(channel, keep=keep).outputs) == set(keep)


def test_images_as_typed_values_get_the_answer_of_the_same_images_as_content(channel: grpc.Channel, images: Images) -> None:
    typed = predict(channel, tensor(2, 784, float_val=images[:2].ravel().tolist()))
    assert logits(typed).tobytes() == logits(predict(channel, of(images[:2]))).tobytes()


def test_a_single_value_stands_for_all_pixels(channel: grpc.Channel) -> None:
    found = logits(predict(channel, tensor(2, 784, float_val=[0.5])))
    assert found.tobytes() == logits(predict(channel, of(np.full((2, 784), 0.5, np.float32)))).tobytes()


def test_values_beyond_the_shape_are_ignored(channel: grpc.Channel) -> None:
    found = logits(predict(channel, tensor(1, 784, float_val=[0.5] * 784 + [9.0] * 16)))
    assert found.tobytes() == logits(predict(channel, of(np.full((1, 784), 0.5, np.float32)))).tobytes()


@pytest.mark.parametrize("values", [{}, {"double_val": [0.5] * 784}, {"int_val": [1] * 784}, {"half_val": [1] * 784}])
def test_no_values_or_those_of_another_type_are_scored_as_black_images(channel: grpc.Channel, values: dict[str, list]) -> None:
    assert logits(predict(channel, tensor(1, 784, **values))).tobytes() == logits(predict(channel, zeros(1, 784))).tobytes()


def test_pixels_that_are_no_numbers_are_scored_not_refused(channel: grpc.Channel) -> None:
    assert logits(predict(channel, of(np.full((1, 784), np.nan, np.float32)))).shape == (1, 10)


def test_an_empty_batch_gets_what_the_graph_says_and_harms_nothing(channel: grpc.Channel, images: Images) -> None:
    for empty in (tensor(0, 784), zeros(0, 784), tensor(0, 784, float_val=[1.0])):
        assert outcome(channel, PREDICT, scoring(empty)) in {Code.OK, Code.INVALID_ARGUMENT}
        assert logits(predict(channel, of(images[:2]))).shape == (2, 10)


# Refusals

NAMED = {"images": zeros(1, 784)}

REFUSED = {
    "Predict without a ModelSpec": (PREDICT, without_spec(scoring()), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
    "Predict without a name": (PREDICT, scoring(model=""), Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
    "unknown model": (PREDICT, scoring(model="nosuch"), Code.NOT_FOUND, "Servable not found for request: Latest(nosuch)"),
    "unknown model, in Unicode": (PREDICT, scoring(model="模型\n"), Code.NOT_FOUND, "Servable not found for request: Latest(模型\n)"),
    "unknown model with version": (
        *(PREDICT, scoring(model="nosuch", version=1), Code.NOT_FOUND),
        "Servable not found for request: Specific(nosuch, 1)",
    ),
    "unknown version": (PREDICT, scoring(version=9), Code.NOT_FOUND, "Servable not found for request: Specific(cnn2, 9)"),
    "version 0 is not the default": (PREDICT, scoring(version=0), Code.NOT_FOUND, "Servable not found for request: Specific(cnn2, 0)"),
    "negative version": (PREDICT, scoring(version=-1), Code.NOT_FOUND, "Servable not found for request: Specific(cnn2, -1)"),
    "unknown label": (PREDICT, scoring(label="stable"), Code.INVALID_ARGUMENT, "Unrecognized servable version label: stable"),
    "unknown signature": (
        *(PREDICT, scoring(signature="nosuch"), Code.FAILED_PRECONDITION),
        'Serving signature key "nosuch" not found.',
    ),
    "a signature that can't be run": (
        *(PREDICT, scoring(signature="__saved_model_init_op"), Code.FAILED_PRECONDITION),
        'Serving signature key "__saved_model_init_op" not found.',
    ),
    "no inputs": (
        *(PREDICT, name(predict_pb2.PredictRequest()), Code.INVALID_ARGUMENT),
        "input size does not match signature: 0!=1 len({}) != len({images}). Sent extra: {}. Missing but required: {images}.",
    ),
    "one input too many": (
        *(PREDICT, scoring(inputs={**NAMED, "more": zeros(1)}), Code.INVALID_ARGUMENT),
        "input size does not match signature: 2!=1 len({images,more}) != len({images}). Sent extra: {more}. Missing but required: {}.",
    ),
    "misspelt input": (
        *(PREDICT, scoring(inputs={"image": zeros(1, 784)}), Code.INVALID_ARGUMENT),
        "Signature input alias: images(feed name: serving_default_images:0) not found in request and no default value provided. "
        "Inputs expected to be in the request {image}, or default input alias set: ",
    ),
    "float64": (PREDICT, scoring(zeros(1, 784, dtype="f8")), Code.INVALID_ARGUMENT, "Expects arg[0] to be float but double is provided"),
    "uint8": (PREDICT, scoring(zeros(1, 784, dtype="u1")), Code.INVALID_ARGUMENT, "Expects arg[0] to be float but uint8 is provided"),
    "int64": (PREDICT, scoring(zeros(1, 784, dtype="i8")), Code.INVALID_ARGUMENT, "Expects arg[0] to be float but int64 is provided"),
    "bool": (PREDICT, scoring(zeros(1, 784, dtype="?")), Code.INVALID_ARGUMENT, "Expects arg[0] to be float but bool is provided"),
    "strings": (
        *(PREDICT, scoring(tensor(1, 784, dtype=tf.string, string_val=[b"0"] * 784)), Code.INVALID_ARGUMENT),
        "Expects arg[0] to be float but string is provided",
    ),
    "no dtype": (
        *(PREDICT, scoring(tensor(1, 784, dtype=0, content=bytes(784 * 4))), Code.INVALID_ARGUMENT),
        "tensor parsing error: images",
    ),
    "unknown dtype": (PREDICT, scoring(tensor(1, 784, dtype=9999)), Code.INVALID_ARGUMENT, "tensor parsing error: images"),
    "content too short": (
        *(PREDICT, scoring(tensor(1, 784, content=bytes(783 * 4))), Code.INVALID_ARGUMENT),
        "tensor parsing error: images",
    ),
    "content too long": (
        *(PREDICT, scoring(tensor(1, 784, content=bytes(785 * 4))), Code.INVALID_ARGUMENT),
        "tensor parsing error: images",
    ),
    "negative batch size": (
        *(PREDICT, scoring(tensor(-1, 784, content=bytes(784 * 4))), Code.INVALID_ARGUMENT),
        "tensor parsing error: images",
    ),
    "a batch beyond any memory": (PREDICT, scoring(tensor(2**40, 784)), Code.INVALID_ARGUMENT, "tensor parsing error: images"),
    "unknown output": (
        *(PREDICT, scoring(keep=("nosuch",)), Code.INVALID_ARGUMENT),
        "output tensor alias not found in signature: nosuch Outputs expected to be in the set {classes,logits}.",
    ),
    "output named twice": (
        *(PREDICT, scoring(keep=("logits", "logits")), Code.INVALID_ARGUMENT),
        "duplicate output tensor alias: logits",
    ),
    "metadata without a ModelSpec": (METADATA, without_spec(asking("signature_def")), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
    "metadata without a name": (METADATA, asking("signature_def", model=""), Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
    "metadata without a field": (
        *(METADATA, asking(), Code.INVALID_ARGUMENT),
        "GetModelMetadataRequest must specify at least one metadata_field",
    ),
    "metadata of an unknown field": (
        *(METADATA, asking("signature_def", "weights"), Code.INVALID_ARGUMENT),
        "Metadata field weights is not supported",
    ),
    "metadata of an unknown model": (
        *(METADATA, asking("signature_def", model="nosuch"), Code.NOT_FOUND),
        "Servable not found for request: Latest(nosuch)",
    ),
    "metadata of an unknown version": (
        *(METADATA, asking("signature_def", version=9), Code.NOT_FOUND),
        "Servable not found for request: Specific(cnn2, 9)",
    ),
    "status without a ModelSpec": (STATUS, without_spec(status_of()), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
    "status of an unknown model": (STATUS, status_of(model="nosuch"), Code.NOT_FOUND, "Could not find any versions of model nosuch"),
    "status of an unknown version": (STATUS, status_of(version=9), Code.NOT_FOUND, "Could not find version 9 of model cnn2"),
    "Predict of garbage": (PREDICT, b"\xff\xff\xff\xff", Code.INTERNAL, ""),
    "metadata of garbage": (METADATA, b"\xff\xff\xff\xff", Code.INTERNAL, ""),
    "status of garbage": (STATUS, b"\xff\xff\xff\xff", Code.INTERNAL, ""),
    "Predict of half a request": (PREDICT, scoring().SerializeToString()[:-100], Code.INTERNAL, ""),
}


@pytest.mark.parametrize(("method", "message", "code", "text"), REFUSED.values(), ids=REFUSED)
def test_a_bad_request_gets_tensorflow_servings_code_and_words_and_the_next_is_answered(
    channel: grpc.Channel, images: Images, method: str, message: Any, code: Code, text: str
) -> None:
    assert refusal(channel, method, message) == (code, text)
    assert logits(predict(channel, of(images[:1]))).shape == (1, 10)


@pytest.mark.parametrize(
    "shape",
    [(1, 783), (1, 785), (784,), (28, 28), (1, 28, 28), (1, 28, 28, 1), (1, 1, 784), (784, 1), (0, 783), ()],
    ids=lambda shape: "×".join(map(str, shape)) or "scalar",
)
@pytest.mark.parametrize("model", ["cnn2", "cnn4"])
def test_a_shape_that_contradicts_the_signature_is_refused_before_the_graph_runs(
    channel: grpc.Channel, images: Images, model: str, shape: tuple[int, ...]
) -> None:
    # Deliberately stricter than TensorFlow Serving, which runs the graph: some kernels abort the process.
    said = f"input images has shape [{','.join(map(str, shape))}], the signature says [?,784]"
    assert refusal(channel, PREDICT, scoring(zeros(*shape), model=model)) == (Code.INVALID_ARGUMENT, said)
    assert logits(predict(channel, of(images[:1]), model=model)).shape == (1, 10)


@pytest.mark.parametrize("method", ["PredictionService/NoSuch", "NoSuchService/Predict", "SessionService/SessionRun"])
def test_a_method_or_service_that_is_not_there_is_unimplemented(channel: grpc.Channel, method: str) -> None:
    assert refusal(channel, method, scoring())[0] is Code.UNIMPLEMENTED


def test_a_long_text_is_cut_where_tensorflow_serving_cuts_it(channel: grpc.Channel) -> None:
    _, text = refusal(channel, PREDICT, scoring(model="n" * 5000))
    whole = f"Servable not found for request: Latest({'n' * 5000})"
    assert text == whole[:1024] + "...TRUNCATED"


def test_a_deadline_that_passes_ends_that_request_only(channel: grpc.Channel, images: Images) -> None:
    code, _ = refusal(channel, PREDICT, scoring(of(images[:128]), model="cnn4"), timeout=0.005)
    assert code is Code.DEADLINE_EXCEEDED
    assert logits(predict(channel, of(images[:1]))).shape == (1, 10)


@settings(deadline=None)
@given(st.sampled_from([PREDICT, METADATA, STATUS]), st.binary(max_size=200))
def test_no_bytes_make_a_handler_fail(channel: grpc.Channel, method: str, raw: bytes) -> None:
    assert outcome(channel, method, raw) in {Code.INTERNAL, Code.INVALID_ARGUMENT, Code.NOT_FOUND}  # an exception would be UNKNOWN


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(0, 255))
def test_no_damage_to_a_good_request_makes_a_handler_fail(channel: grpc.Channel, place: int, byte: int) -> None:
    raw = bytearray(scoring(tensor(1, 784, float_val=[0.5]), keep=("logits",), signature="serving_default").SerializeToString())
    raw[place % len(raw)] = byte
    possible = {Code.OK, Code.INTERNAL, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}
    assert outcome(channel, PREDICT, bytes(raw)) in possible


# Many at once


def test_requests_at_the_same_time_each_get_their_own_answer(channel: grpc.Channel, images: Images) -> None:
    ask = channel.unary_unary("/tensorflow.serving." + PREDICT)
    alone = logits(predict(channel, of(images[:64])))
    futures = [ask.future(scoring(of(images[i : i + 1])).SerializeToString(), timeout=PATIENCE_S) for i in range(64)]
    together = np.concatenate([logits(predict_pb2.PredictResponse.FromString(future.result())) for future in futures])
    assert np.allclose(together, alone, rtol=0, atol=1e-4)


def test_two_hundred_requests_at_once_all_have_an_outcome(server: Endpoint, images: Images) -> None:
    kinds = [
        (PREDICT, scoring(of(images[:1])), Code.OK),
        (PREDICT, scoring(of(images[:8]), model="cnn4"), Code.OK),
        (PREDICT, scoring(zeros(1, 783)), Code.INVALID_ARGUMENT),
        (STATUS, status_of(), Code.OK),
        (PREDICT, scoring(model="nosuch"), Code.NOT_FOUND),
    ]
    channels = [connect(server.address) for _ in range(8)]
    futures = []
    for i in range(200):
        method, message, expected = kinds[i % len(kinds)]
        ask = channels[i % len(channels)].unary_unary("/tensorflow.serving." + method)
        futures.append((ask.future(message.SerializeToString(), timeout=PATIENCE_S), expected))
    assert [future.code() for future, _ in futures] == [expected for _, expected in futures]
    for channel in channels:
        channel.close()


# GetModelMetadata and GetModelStatus


@pytest.mark.parametrize("spec", [{}, {"version": 1}])
def test_metadata_holds_every_signature_that_the_graph_declares(channel: grpc.Channel, spec: dict[str, int]) -> None:
    raw = call(channel, METADATA, asking("signature_def", model="cnn4", **spec))
    response = get_model_metadata_pb2.GetModelMetadataResponse.FromString(raw)
    assert (response.model_spec.name, response.model_spec.version.value, response.model_spec.signature_name) == ("cnn4", 1, "")
    assert set(response.metadata) == {"signature_def"}
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) == {"serving_default", "__saved_model_init_op"}

    def declared(tensors: Any) -> dict[str, tuple[int, list[int]]]:
        return {alias: (info.dtype, [dim.size for dim in info.tensor_shape.dim]) for alias, info in tensors.items()}

    serving = signatures.signature_def["serving_default"]
    assert serving.method_name == "tensorflow/serving/predict"
    assert declared(serving.inputs) == {"images": (tf.float32.as_datatype_enum, [-1, 784])}
    assert declared(serving.outputs) == {
        "logits": (tf.float32.as_datatype_enum, [-1, 10]),
        "classes": (tf.int64.as_datatype_enum, [-1]),
    }
    assert serving.inputs["images"].name == "serving_default_images:0"
    init = signatures.signature_def["__saved_model_init_op"]
    assert declared(init.inputs) == {}
    assert declared(init.outputs) == {"__saved_model_init_op": (0, [])}
    assert init.method_name == ""


@pytest.mark.parametrize("spec", [{}, {"version": 1}, {"label": "any: labels are ignored here"}])
@pytest.mark.parametrize("model", ["cnn2", "cnn4"])
def test_a_served_model_is_available(channel: grpc.Channel, model: str, spec: dict[str, Any]) -> None:
    response = get_model_status_pb2.GetModelStatusResponse.FromString(call(channel, STATUS, status_of(model=model, **spec)))
    (entry,) = response.model_version_status
    assert (entry.version, entry.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    assert (entry.status.error_code, entry.status.error_message) == (0, "")
