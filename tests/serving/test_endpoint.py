from __future__ import annotations

import json
import os
from typing import Any

import grpc
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from serving.endpoint import DESCRIPTION_KEY, Endpoint
from tests.serving.building import PATIENCE_S, PREDICT, STATUS, connect, scoring, status_of

endpoints = st.builds(
    Endpoint,
    address=st.text(),
    engine=st.sampled_from(["embedded", "tensorflow-serving", "unknown"]),
    version=st.none() | st.text(),
    flags=st.none() | st.lists(st.text()),
    batching=st.none() | st.dictionaries(st.text(), st.booleans() | st.integers()),
    threads=st.none() | st.dictionaries(st.text(), st.integers()),
    cpus=st.none() | st.lists(st.integers()),
)


@given(endpoints)
def test_an_endpoint_survives_the_way_through_json_on_one_line(endpoint: Endpoint) -> None:
    text = endpoint.to_json()
    assert "\n" not in text
    assert Endpoint.from_json(text) == endpoint
    assert Endpoint.from_json(text.encode()) == endpoint


def test_an_address_alone_is_an_endpoint_of_which_nothing_is_known() -> None:
    endpoint = Endpoint.from_json('{"address": "127.0.0.1:8500"}')
    assert endpoint == Endpoint("127.0.0.1:8500")
    assert (endpoint.engine, endpoint.version, endpoint.device, endpoint.batching) == ("unknown", None, None, None)


def test_fields_of_a_newer_version_are_left_out_and_changes_win() -> None:
    endpoint = Endpoint.from_json('{"address": "a:1", "engine": "embedded", "colour": "blue"}', address="b:2")
    assert endpoint == Endpoint("b:2", engine="embedded")


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[]", '"address"', "null", '{"engine": "embedded"}'])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Endpoint.from_json(text)


def said_by(endpoint: Endpoint, request: Any) -> tuple[grpc.StatusCode, list[bytes]]:
    """The code of a GetModelStatus call, and the descriptions that came with it."""
    with connect(endpoint.address) as channel:
        asked = channel.unary_unary("/tensorflow.serving." + STATUS).future(request.SerializeToString(), timeout=PATIENCE_S)
        return asked.code(), [value for key, value in asked.initial_metadata() if key == DESCRIPTION_KEY]


def test_the_embedded_server_describes_itself_with_every_status(server: Endpoint) -> None:
    for request, code in ((status_of(), grpc.StatusCode.OK), (status_of(model="nosuch"), grpc.StatusCode.NOT_FOUND)):
        got, descriptions = said_by(server, request)
        assert got is code
        (description,) = descriptions
        assert Endpoint.from_json(description) == server


def test_the_description_says_what_engine_on_what_hardware_with_how_many_threads(server: Endpoint) -> None:
    assert server.engine == "embedded"
    assert server.version is not None
    assert tf.__version__ in server.version
    assert (server.image, server.image_digest) == (None, None)
    assert server.device == ("gpu" if tf.config.list_physical_devices("GPU") else "cpu")
    assert server.device_evidence
    assert server.threads is not None
    assert set(server.threads) == {"session", "grpc"}
    assert min(server.threads.values()) >= 1
    assert server.cpus == sorted(os.sched_getaffinity(0))
    assert server.batching == {"enabled": False}


def test_the_description_never_names_tensorflow_serving(server: Endpoint) -> None:
    _, (description,) = said_by(server, status_of())
    text = description.decode().lower()
    assert "tensorflow serving" not in text
    assert "tensorflow-serving" not in text
    assert json.loads(text)["engine"] == "embedded"


def test_the_flags_are_those_that_decide_the_answers_not_those_of_the_launcher(server: Endpoint) -> None:
    assert server.flags is not None
    assert [flag.partition("=")[0] for flag in server.flags] == ["--models", "--port", "--rest_api_port"]


def test_a_prediction_carries_no_description(server: Endpoint) -> None:
    with connect(server.address) as channel:
        asked = channel.unary_unary("/tensorflow.serving." + PREDICT).future(scoring().SerializeToString(), timeout=PATIENCE_S)
        assert DESCRIPTION_KEY not in dict(asked.initial_metadata())
