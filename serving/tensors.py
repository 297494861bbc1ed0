"""TensorProto to arrays and back, by the rules of TensorFlow's C++ code, which TensorFlow Serving runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

_VALUE_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int64: "int64_val",
    tf.int32: "int_val",
    tf.int16: "int_val",
    tf.int8: "int_val",
    tf.uint8: "int_val",
    tf.uint16: "int_val",
    tf.uint32: "uint32_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
}

_MEMORY = psutil.virtual_memory().total  # TensorFlow's allocator waits 10 seconds before it gives up on a tensor larger than that


class MalformedTensorError(ValueError):
    """The TensorProto contradicts itself."""


def decode(proto: Any) -> npt.NDArray[Any]:
    """The array that a TensorProto holds, not writable. Raises MalformedTensorError.

    Raw content of the exact length is taken as it lies there. All else goes through TensorFlow's own parser: too few
    values repeat the last one, none are zeros, too many are cut, content of a wrong length is an error.
    """
    try:
        dtype = tf.as_dtype(proto.dtype)
        content = proto.tensor_content
        sizes = [dim.size for dim in proto.tensor_shape.dim]
        if min(sizes, default=0) >= 0:
            length = math.prod(sizes) * dtype.size
            if length > _MEMORY:
                raise MalformedTensorError(f"{length} bytes are more than this machine's memory")
            if content and length == len(content) and dtype.is_numpy_compatible and dtype != tf.string:
                return np.frombuffer(content, dtype.as_numpy_dtype).reshape(sizes)
        with tf.device("/CPU:0"):
            value = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
    except (TypeError, ValueError, tf.errors.OpError) as problem:
        raise MalformedTensorError(str(problem)) from problem
    return _array(value)


def encode(array: npt.NDArray[Any], proto: Any) -> None:
    """Writes an array into a TensorProto as typed values, which is how TensorFlow Serving answers by default."""
    array = _array(array)
    dtype = tf.as_dtype(tf.string if array.dtype == object else array.dtype)
    field = _VALUE_FIELDS.get(dtype)
    if field is None:
        proto.CopyFrom(tensor_pb2.TensorProto.FromString(tf.make_tensor_proto(array, dtype=dtype).SerializeToString()))
        return
    proto.dtype = dtype.as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    getattr(proto, field).extend(array.ravel().tolist())


def _array(value: Any) -> npt.NDArray[Any]:
    # TensorFlow gives a scalar string as bytes, and numpy's own bytes type drops zeros at the end.
    return np.asarray(value, dtype=object if isinstance(value, bytes) else None)
