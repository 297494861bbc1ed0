"""The few protocol messages that a load process needs, without TensorFlow.

Importing the messages of `tensorflow-serving-api` imports TensorFlow: seconds and half a gigabyte in every load process. So
the fields that are used here are declared again, in a descriptor pool of their own; unknown fields are kept by
protobuf. The numbers are those of tensorflow/serving 2.20.0 (apis/*.proto) and tensorflow 2.20 (framework/*.proto);
a test holds both against each other.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "timetoscore"
_KINDS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
}

# message: {field: (number, type)}; "*" repeats, "map:" is a map from strings, "a|" puts a field into the oneof a.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "*Dim"), "unknown_rank": (3, "bool")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShape"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "*float"),
        "double_val": (6, "*double"),
        "int_val": (7, "*int32"),
        "int64_val": (10, "*int64"),
    },
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "version_choice|google.protobuf.Int64Value"),
        "version_label": (4, "version_choice|string"),
        "signature_name": (3, "string"),
    },
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "map:Tensor"), "output_filter": (3, "*string")},
    "PredictResponse": {"outputs": (1, "map:Tensor"), "model_spec": (2, "ModelSpec")},
    "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
    "Status": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ModelVersionStatus": {"version": (1, "int64"), "state": (2, "int32"), "status": (3, "Status")},
    "GetModelStatusResponse": {"model_version_status": (1, "*ModelVersionStatus")},
    "GetModelMetadataRequest": {"model_spec": (1, "ModelSpec"), "metadata_field": (2, "*string")},
    "GetModelMetadataResponse": {"model_spec": (1, "ModelSpec"), "metadata": (2, "map:google.protobuf.Any")},
    "TensorInfo": {"name": (1, "string"), "dtype": (2, "int32"), "tensor_shape": (3, "TensorShape")},
    "SignatureDef": {"inputs": (1, "map:TensorInfo"), "outputs": (2, "map:TensorInfo"), "method_name": (3, "string")},
    "SignatureDefMap": {"signature_def": (1, "map:SignatureDef")},
}

DT_FLOAT = 1
DT_INT64 = 9
AVAILABLE = 30


def _type(field: Any, kind: str) -> None:
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{kind}" if "." in kind else f".{_PACKAGE}.{kind}"


def _map_entry(message: Any, field: Any, kind: str) -> None:
    entry = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    _type(entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), "string")
    _type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), kind)
    field.label = _Field.LABEL_REPEATED
    field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"


def _declare() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (wrappers_pb2, any_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="timetoscore/messages.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.extend(known.DESCRIPTOR.name for known in (wrappers_pb2, any_pb2))
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        oneofs: dict[str, int] = {}
        for field_name, (number, spelt) in fields.items():
            oneof, _, kind = spelt.rpartition("|")
            repeated = kind.startswith("*")
            field = message.field.add(name=field_name, number=number, label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL)
            if oneof:
                if oneof not in oneofs:
                    oneofs[oneof] = len(message.oneof_decl)
                    message.oneof_decl.add(name=oneof)
                field.oneof_index = oneofs[oneof]
            if kind.startswith("map:"):
                _map_entry(message, field, kind.removeprefix("map:"))
            else:
                _type(field, kind.removeprefix("*"))
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES = _declare()
PredictRequest: Any = _CLASSES["PredictRequest"]
PredictResponse: Any = _CLASSES["PredictResponse"]
GetModelStatusRequest: Any = _CLASSES["GetModelStatusRequest"]
GetModelStatusResponse: Any = _CLASSES["GetModelStatusResponse"]
GetModelMetadataRequest: Any = _CLASSES["GetModelMetadataRequest"]
GetModelMetadataResponse: Any = _CLASSES["GetModelMetadataResponse"]
SignatureDefMap: Any = _CLASSES["SignatureDefMap"]
