from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2

from loadtest import messages

PAIRS = [
    (messages.PredictRequest, predict_pb2.PredictRequest),
    (messages.PredictResponse, predict_pb2.PredictResponse),
    (messages.GetModelStatusRequest, get_model_status_pb2.GetModelStatusRequest),
    (messages.GetModelStatusResponse, get_model_status_pb2.GetModelStatusResponse),
    (messages.GetModelMetadataRequest, get_model_metadata_pb2.GetModelMetadataRequest),
    (messages.GetModelMetadataResponse, get_model_metadata_pb2.GetModelMetadataResponse),
    (messages.SignatureDefMap, get_model_metadata_pb2.SignatureDefMap),
]


def _same(own: object, real: object, seen: set[str]) -> None:
    if own.full_name in seen:
        return
    seen.add(own.full_name)
    for field in own.fields:
        other = real.fields_by_name[field.name]
        assert field.number == other.number, field.full_name
        assert field.is_repeated == other.is_repeated, field.full_name
        wire = {field.TYPE_ENUM: field.TYPE_INT32}
        assert wire.get(field.type, field.type) == wire.get(other.type, other.type), field.full_name
        if field.message_type is not None:
            _same(field.message_type, other.message_type, seen)


@pytest.mark.parametrize(("own", "real"), PAIRS, ids=[real.DESCRIPTOR.name for _, real in PAIRS])
def test_own_messages_have_the_numbers_and_types_of_the_api(own: type, real: type) -> None:
    _same(own.DESCRIPTOR, real.DESCRIPTOR, set())


def test_own_numbers_of_dtypes_and_states_are_the_apis() -> None:
    assert messages.DT_FLOAT == types_pb2.DT_FLOAT
    assert messages.DT_INT64 == types_pb2.DT_INT64
    assert messages.AVAILABLE == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert meta_graph_pb2.TensorInfo.DESCRIPTOR.fields_by_name["dtype"].number == 2


@given(st.text(max_size=20), st.integers(0, 2**63 - 1), st.integers(1, 4))
def test_a_request_means_the_same_to_the_api(name: str, version: int, rows: int) -> None:
    own = messages.PredictRequest()
    own.model_spec.name, own.model_spec.version.value = name, version
    tensor = own.inputs["images"]
    tensor.dtype = messages.DT_FLOAT
    for size in (rows, 784):
        tensor.tensor_shape.dim.add().size = size
    tensor.tensor_content = np.zeros((rows, 784), "<f4").tobytes()
    real = predict_pb2.PredictRequest.FromString(own.SerializeToString())
    assert (real.model_spec.name, real.model_spec.version.value) == (name, version)
    assert real.inputs["images"] == tensor_pb2.TensorProto.FromString(tensor.SerializeToString())
    assert [dim.size for dim in real.inputs["images"].tensor_shape.dim] == [rows, 784]


def test_a_load_process_imports_neither_tensorflow_nor_its_api() -> None:
    check = (
        "import loadtest.score, loadtest.driver, sys; "
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('tensorflow', 'tensorflow_serving', 'keras')))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
