from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework import tensor_pb2

from serving.tensors import MalformedTensorError, decode, encode

NUMBERS = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_]
FIELDS = {"float32": "float_val", "float64": "double_val", "int32": "int_val", "int64": "int64_val", "uint8": "int_val", "bool": "bool_val"}

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def byte_strings(draw: st.DrawFn) -> npt.NDArray[np.object_]:
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = np.empty(shape, object)
    array.reshape(-1)[:] = draw(st.lists(st.binary(max_size=12), min_size=array.size, max_size=array.size))
    return array


arrays = st.one_of(*(hnp.arrays(dtype, shapes) for dtype in NUMBERS), byte_strings())


def tensor(*shape: int, dtype: int = tf.float32.as_datatype_enum, content: bytes = b"", **values: list) -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=dtype, tensor_content=content, **values)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    return proto


def assert_same(found: npt.NDArray, wanted: npt.NDArray) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.dtype == object:
        assert found.tolist() == wanted.tolist()
    else:
        assert found.tobytes() == wanted.tobytes()  # bits, for NaN and -0


@settings(deadline=None)  # the machine may be busy
@given(arrays)
def test_a_well_formed_tensor_decodes_as_tensorflow_reads_it(array: npt.NDArray) -> None:
    proto = tf.make_tensor_proto(array)
    found = decode(proto)
    assert_same(found, np.asarray(tf.make_ndarray(proto), found.dtype))
    assert_same(found, array)


@settings(deadline=None)
@given(st.one_of(*(hnp.arrays(dtype, shapes) for dtype in NUMBERS)))
def test_content_and_typed_values_decode_alike(array: npt.NDArray) -> None:
    number = tf.as_dtype(array.dtype).as_datatype_enum
    content = tensor(*array.shape, dtype=number, content=array.tobytes())
    typed = tensor(*array.shape, dtype=number, **{FIELDS[array.dtype.name]: array.ravel().tolist()})
    assert_same(decode(content), array)
    assert_same(decode(typed), array)


@settings(deadline=None)
@given(arrays)
def test_what_is_encoded_decodes_to_the_same(array: npt.NDArray) -> None:
    proto = tensor_pb2.TensorProto()
    encode(array, proto)
    assert_same(decode(proto), array)


@settings(deadline=None)
@given(st.one_of(*(hnp.arrays(dtype, shapes) for dtype in NUMBERS)))
def test_numbers_are_encoded_as_typed_values_of_their_own_field(array: npt.NDArray) -> None:
    proto = tensor_pb2.TensorProto()
    encode(array, proto)
    assert not proto.tensor_content
    filled = {field.name for field, _ in proto.ListFields()} - {"dtype", "tensor_shape"}
    assert filled == ({FIELDS[array.dtype.name]} if array.size else set())
    assert len(getattr(proto, FIELDS[array.dtype.name])) == array.size
    assert proto.dtype == tf.as_dtype(array.dtype).as_datatype_enum


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint16", "uint32", "uint64", "complex64"])
def test_rarer_number_types_survive_the_way_out_and_back(dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    proto = tensor_pb2.TensorProto()
    encode(array, proto)
    assert_same(decode(proto), array)


def test_a_scalar_string_keeps_its_zeros_at_the_end() -> None:
    assert decode(tensor(dtype=tf.string.as_datatype_enum, string_val=[b"ab\0\0"])).item() == b"ab\0\0"
    proto = tensor_pb2.TensorProto()
    encode(b"ab\0\0", proto)  # as a session gives it
    assert list(proto.string_val) == [b"ab\0\0"]


def test_one_value_stands_for_all() -> None:
    assert decode(tensor(2, 3, float_val=[0.5])).tolist() == [[0.5] * 3] * 2


def test_too_few_values_repeat_the_last() -> None:
    assert decode(tensor(4, float_val=[1, 2])).tolist() == [1, 2, 2, 2]


def test_no_values_are_zeros() -> None:
    assert decode(tensor(2, 3)).tolist() == [[0] * 3] * 2


def test_too_many_values_are_cut() -> None:
    assert decode(tensor(2, float_val=[1, 2, 3, 4])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtype", "field"),
    [(tf.float32, "double_val"), (tf.float32, "int_val"), (tf.float32, "int64_val"), (tf.int64, "int_val"), (tf.float64, "float_val")],
)
def test_values_in_the_wrong_field_count_for_nothing(dtype: tf.DType, field: str) -> None:
    assert decode(tensor(2, dtype=dtype.as_datatype_enum, **{field: [7, 8]})).tolist() == [0, 0]


def test_a_value_too_large_for_its_type_wraps_as_in_cpp() -> None:
    assert decode(tensor(1, dtype=tf.uint8.as_datatype_enum, int_val=[300])).tolist() == [44]


@pytest.mark.parametrize(
    "proto",
    [
        pytest.param(tensor(1, 784, content=bytes(783 * 4)), id="content one value short"),
        pytest.param(tensor(1, 784, content=bytes(785 * 4)), id="content one value long"),
        pytest.param(tensor(1, 784, content=bytes(784 * 4 - 1)), id="content one byte short"),
        pytest.param(tensor(-1, 784, content=bytes(784 * 4)), id="negative dimension with content"),
        pytest.param(tensor(-1, -1, content=bytes(4)), id="two negative dimensions whose product fits"),
        pytest.param(tensor(-1, 784), id="negative dimension without values"),
        pytest.param(tensor(2**40, 784), id="more than any memory"),
        pytest.param(tensor(2**62, 2**62), id="a product beyond 64 bits"),
        pytest.param(tensor(2**32, 2**32, content=bytes(4)), id="a product that is 0 in 64 bits"),
        pytest.param(tensor(*[1] * 300, content=bytes(4)), id="300 dimensions"),
        pytest.param(tensor(1, dtype=0, content=bytes(4)), id="no dtype"),
        pytest.param(tensor(1, dtype=9999, content=bytes(4)), id="an unknown dtype"),
        pytest.param(tensor(1, dtype=tf.resource.as_datatype_enum), id="a resource"),
        pytest.param(tensor(1, dtype=tf.variant.as_datatype_enum), id="a variant"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_malformed(proto: tensor_pb2.TensorProto) -> None:
    with pytest.raises(MalformedTensorError):
        decode(proto)


def test_a_tensor_beyond_memory_is_refused_without_waiting_for_it() -> None:
    begin = time.monotonic()
    for values in ({}, {"float_val": [0.5]}, {"content": bytes(4)}):
        with pytest.raises(MalformedTensorError):
            decode(tensor(2**40, 784, **values))
    assert time.monotonic() - begin < 5  # TensorFlow's allocator tries for ten seconds


@pytest.mark.parametrize("values", [{"content": bytes(4)}, {"float_val": [0]}])
def test_an_unknown_rank_is_read_as_a_scalar(values: dict) -> None:
    proto = tensor(**values)
    proto.tensor_shape.unknown_rank = True
    assert_same(decode(proto), np.asarray(0, np.float32))


protos = st.builds(
    lambda dtype, shape, content, floats, ints, strings: tensor(
        *shape, dtype=dtype, content=content, float_val=floats, int_val=ints, string_val=strings
    ),
    dtype=st.integers(-1, 140),
    shape=st.lists(st.integers(-2, 4), max_size=4),
    content=st.binary(max_size=64),
    floats=st.lists(st.floats(width=32), max_size=3),
    ints=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    strings=st.lists(st.binary(max_size=4), max_size=2),
)


@settings(deadline=None)
@given(protos)
def test_any_tensor_is_an_array_of_its_shape_or_malformed(proto: tensor_pb2.TensorProto) -> None:
    try:
        array = decode(proto)
    except MalformedTensorError:
        return
    assert list(array.shape) == [dim.size for dim in proto.tensor_shape.dim]
