"""Messages of TensorFlow Serving's config files that the package tensorflow-serving-api leaves out.

Declared here, in a descriptor pool of their own so that they can't collide with the same names declared elsewhere. Names
and numbers of the fields are those of tensorflow/serving 2.20.0 (session_bundle_config.proto, monitoring_config.proto and
ssl_config.proto).
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from google.protobuf.message import Message

_PACKAGE = "tensorflow.serving"
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"int64": _FIELD.TYPE_INT64, "string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}

# message: its fields, each a type, a name and a number, as in a .proto file. Wrapper messages tell "unset" from zero.
_MESSAGES = {
    "BatchingParameters": (
        ("google.protobuf.Int64Value", "max_batch_size", 1),
        ("google.protobuf.Int64Value", "batch_timeout_micros", 2),
        ("google.protobuf.Int64Value", "max_enqueued_batches", 3),
        ("google.protobuf.Int64Value", "num_batch_threads", 4),
        ("google.protobuf.StringValue", "thread_pool_name", 5),
        ("repeated int64", "allowed_batch_sizes", 6),
        ("bool", "pad_variable_length_inputs", 7),
        ("google.protobuf.BoolValue", "enable_large_batch_splitting", 8),
        ("google.protobuf.Int64Value", "max_execution_batch_size", 9),
    ),
    "PrometheusConfig": (("bool", "enable", 1), ("string", "path", 2)),
    "MonitoringConfig": (("tensorflow.serving.PrometheusConfig", "prometheus_config", 1),),
    "SSLConfig": (("string", "server_key", 1), ("string", "server_cert", 2), ("string", "custom_ca", 3), ("bool", "client_verify", 4)),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="timetoscore/serving_configs.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for declared, field_name, number in fields:
            repeated, kind = declared.startswith("repeated "), declared.removeprefix("repeated ")
            field = message.field.add(name=field_name, number=number, label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{kind}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
_pool.AddSerializedFile(_file().SerializeToString())


def _message(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


BatchingParameters = _message("BatchingParameters")
MonitoringConfig = _message("MonitoringConfig")
SSLConfig = _message("SSLConfig")
