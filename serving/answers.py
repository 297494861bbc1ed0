"""What the embedded server answers: Predict, GetModelMetadata and GetModelStatus, by TensorFlow Serving's rules and texts.

Functions of the loaded models and a request message; no sockets. A refusal is a `Refusal` with the gRPC code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from serving.servable import Servable, Signature, fits
from serving.tensors import MalformedTensorError, decode, encode

Models = Mapping[str, Servable]

DEFAULT_SIGNATURE = "serving_default"
AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE
# What the Python session puts before the graph's own words, with a stack for each node that they name.
_ADDED_BY_PYTHON = re.compile(r"\AGraph execution error:\n\n(?:Detected at node .*?\nNode: '[^'\n]*'\n)*", re.DOTALL)
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request that is not served: the gRPC code and the text that the client gets."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def _invalid(text: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, text)


def find(models: Models, request: Any) -> Servable:
    """The servable that a request's ModelSpec names. Raises Refusal."""
    if not request.HasField("model_spec"):
        raise _invalid("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise _invalid("ModelSpec has no name specified.")
    servable = models.get(spec.name)
    choice = spec.WhichOneof("version_choice")
    if choice == "version" and (servable is None or servable.version != spec.version.value):
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific({spec.name}, {spec.version.value})")
    if choice == "version_label" and servable is not None:
        raise _invalid(f"Unrecognized servable version label: {spec.version_label}")
    if servable is None:
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({spec.name})")
    return servable


def predict(models: Models, request: Any) -> Any:
    """The PredictResponse to a PredictRequest. Raises Refusal.

    Stricter than TensorFlow Serving in one point: a shape that contradicts the signature is refused before the graph runs,
    because some kernels abort the process on it.
    """
    servable = find(models, request)
    key = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(key)
    if signature is None:
        raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{key}" not found.')
    feeds = _feeds(signature, request)
    wanted = _wanted(signature, list(request.output_filter))
    try:
        values = signature.run(*feeds)
    except tf.errors.OpError as problem:
        raise Refusal(_CODES.get(problem.error_code, grpc.StatusCode.INTERNAL), _ADDED_BY_PYTHON.sub("", problem.message)) from problem
    response = predict_pb2.PredictResponse()
    spec = response.model_spec
    spec.name, spec.version.value, spec.signature_name = servable.name, servable.version, key
    for alias, value in zip(signature.outputs, values, strict=True):
        if alias in wanted:
            encode(value, response.outputs[alias])
    return response


def _feeds(signature: Signature, request: Any) -> list[Any]:
    sent, needed = set(request.inputs), set(signature.inputs)
    if len(sent) != len(needed):
        extra, missing = ",".join(sorted(sent - needed)), ",".join(sorted(needed - sent))
        raise _invalid(
            f"input size does not match signature: {len(sent)}!={len(needed)} len({{{','.join(sorted(sent))}}}) != "
            f"len({{{','.join(sorted(needed))}}}). Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )
    feeds = []
    for index, (alias, wanted) in enumerate(signature.inputs.items()):
        if alias not in sent:
            raise _invalid(
                f"Signature input alias: {alias}(feed name: {wanted.tensor}) not found in request and no default value provided. "
                f"Inputs expected to be in the request {{{','.join(sorted(sent))}}}, or default input alias set: "
            )
        proto = request.inputs[alias]
        try:
            array = decode(proto)
        except MalformedTensorError as problem:
            raise _invalid(f"tensor parsing error: {alias}") from problem
        if proto.dtype != wanted.dtype.as_datatype_enum:
            # Feeding a session would cast it without a word.
            raise _invalid(f"Expects arg[{index}] to be {wanted.dtype.name.removesuffix('32')} but {_dtype_name(proto.dtype)} is provided")
        if not fits(array.shape, wanted.shape):
            expected = ",".join("?" if size is None else str(size) for size in wanted.shape or ())
            raise _invalid(f"input {alias} has shape [{','.join(map(str, array.shape))}], the signature says [{expected}]")
        feeds.append(array)
    return feeds


def _dtype_name(number: int) -> str:
    return {1: "float", 2: "double"}.get(number) or tf.as_dtype(number).name


def _wanted(signature: Signature, output_filter: list[str]) -> set[str]:
    for position, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            known = ",".join(signature.outputs)
            raise _invalid(f"output tensor alias not found in signature: {alias} Outputs expected to be in the set {{{known}}}.")
        if alias in output_filter[:position]:
            raise _invalid(f"duplicate output tensor alias: {alias}")
    return set(output_filter or signature.outputs)


def metadata(models: Models, request: Any) -> Any:
    """The GetModelMetadataResponse to a GetModelMetadataRequest. Raises Refusal."""
    if not request.HasField("model_spec"):
        raise _invalid("Missing ModelSpec")
    if not request.metadata_field:
        raise _invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != "signature_def":
            raise _invalid(f"Metadata field {field} is not supported")
    servable = find(models, request)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name, response.model_spec.version.value = servable.name, servable.version
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in servable.meta.items():
        signatures.signature_def[key].CopyFrom(definition)
    response.metadata["signature_def"].Pack(signatures)
    return response


def status(models: Models, request: Any) -> Any:
    """The GetModelStatusResponse to a GetModelStatusRequest. Raises Refusal."""
    if not request.HasField("model_spec"):
        raise _invalid("Missing ModelSpec")
    spec = request.model_spec
    servable = models.get(spec.name)
    if spec.HasField("version") and (servable is None or servable.version != spec.version.value):
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"Could not find version {spec.version.value} of model {spec.name}")
    if servable is None:
        raise Refusal(grpc.StatusCode.NOT_FOUND, f"Could not find any versions of model {spec.name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    entry = response.model_version_status.add()
    entry.version, entry.state = servable.version, AVAILABLE
    entry.status.error_code = 0
    return response
