"""What a server says of itself before it gets any load: ready or not, which versions, which signature, which engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from loadtest import messages
from loadtest.channels import OK, GrpcioChannel, Reply, code_name
from loadtest.errors import LoadError
from serving.endpoint import DESCRIPTION_KEY, Endpoint

_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_ASK_WITHIN_S = 10.0
_POLL_S = 0.2
_UNAVAILABLE, _NOT_FOUND = 14, 5
_DTYPES = {messages.DT_FLOAT: "float32", messages.DT_INT64: "int64"}


@dataclass(frozen=True)
class Target:
    """A model that is AVAILABLE at a server, with the names that requests and replies need."""

    endpoint: Endpoint
    model: str
    version: int
    signature: str
    input_name: str
    image_size: int
    output_name: str


def address(host: str) -> str:
    """`host:port` from what a user gave as a host. Raises LoadError if it has no port or another scheme than gRPC's."""
    scheme, separator, rest = host.strip().rpartition("://")
    name, _, port = rest.rstrip("/").rpartition(":")
    if (separator and scheme not in ("grpc", "http")) or not name or not port.isdigit() or not 0 < int(port) < 65536:
        raise LoadError(f"--host is {host!r}: give the gRPC address as HOST:PORT, such as 127.0.0.1:8500")
    return f"{name}:{port}"


def inspect(host: str, model: str, signature: str, ready_within_s: float) -> Target:
    """Waits until `model` is AVAILABLE at `host` and describes it.

    Raises LoadError if it is not within `ready_within_s`, or if the model or signature is not one that can be scored
    with MNIST images, naming what was asked for and what there is.
    """
    channel = GrpcioChannel(address(host))
    try:
        deadline = time.monotonic() + ready_within_s
        channel.connect(ready_within_s)
        version, endpoint = _available(channel, model, deadline, ready_within_s)
        input_name, image_size, output_name = _signature(channel, model, signature)
    finally:
        channel.close()
    return Target(endpoint, model, version, signature, input_name, image_size, output_name)


def _available(channel: GrpcioChannel, model: str, deadline: float, ready_within_s: float) -> tuple[int, Endpoint]:
    request = messages.GetModelStatusRequest()
    request.model_spec.name = model
    while True:
        reply, metadata = channel.ask(_STATUS, request.SerializeToString(), _ASK_WITHIN_S)
        if reply.code == _NOT_FOUND:
            raise LoadError(f"the server at {channel.target} has no model {model!r} ({reply.text}): name one that it serves by --model")
        if reply.code not in (OK, _UNAVAILABLE):
            raise LoadError(f"{channel.target} doesn't answer GetModelStatus ({_why(reply)}): is it TensorFlow Serving's gRPC port?")
        states = messages.GetModelStatusResponse.FromString(reply.payload).model_version_status if reply.code == OK else ()
        ready = [entry.version for entry in states if entry.state == messages.AVAILABLE]
        if ready:
            said = metadata.get(DESCRIPTION_KEY)
            return max(ready), Endpoint.from_json(said, address=channel.target) if said else Endpoint(channel.target)
        if time.monotonic() > deadline:
            raise LoadError(f"no version of {model} became AVAILABLE at {channel.target} within {ready_within_s:g} s: see the server's log")
        time.sleep(_POLL_S)


def _signature(channel: GrpcioChannel, model: str, signature: str) -> tuple[str, int, str]:
    request = messages.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = model
    reply, _ = channel.ask(_METADATA, request.SerializeToString(), _ASK_WITHIN_S)
    if reply.code != OK:
        raise LoadError(f"the server at {channel.target} doesn't give the signatures of {model} ({_why(reply)})")
    packed = messages.GetModelMetadataResponse.FromString(reply.payload).metadata["signature_def"].value
    signatures = messages.SignatureDefMap.FromString(packed).signature_def
    if signature not in signatures:
        known = ", ".join(sorted(name for name in signatures if not name.startswith("__"))) or "none"
        raise LoadError(f"{model} has no signature {signature!r} (it has: {known}): name one of them by --signature")
    definition = signatures[signature]
    if len(definition.inputs) != 1:
        raise LoadError(f"signature {signature} of {model} has {len(definition.inputs)} inputs: only models with one can be scored")
    (input_name, info), outputs = next(iter(definition.inputs.items())), definition.outputs
    shape = _shape(info)
    if info.dtype != messages.DT_FLOAT or len(shape) != 2 or shape[0] != -1:
        raise LoadError(f"input {input_name} of {model} is {_DTYPES.get(info.dtype, info.dtype)} {shape}: MNIST needs float32 [-1, 784]")
    for name, dtype, rank in (("classes", messages.DT_INT64, 1), ("logits", messages.DT_FLOAT, 2)):
        if name in outputs and outputs[name].dtype == dtype and len(_shape(outputs[name])) == rank:
            return input_name, shape[1], name
    raise LoadError(
        f"signature {signature} of {model} gives {sorted(outputs)}: 'classes' int64 [-1] or 'logits' float32 [-1, 10] is needed"
    )


def _shape(info: Any) -> list[int]:
    return [dim.size for dim in info.tensor_shape.dim]


def _why(reply: Reply) -> str:
    return f"{code_name(reply.code)}: {reply.text}" if reply.text else code_name(reply.code)
