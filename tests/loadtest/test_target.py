from __future__ import annotations

import socket
import time

import pytest

from loadtest.errors import LoadError
from loadtest.target import address, inspect
from serving.endpoint import Endpoint
from tests.loadtest.peer import running
from train.mnist import Mnist


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:8500", "127.0.0.1:8500"),
        ("http://127.0.0.1:8500", "127.0.0.1:8500"),
        ("grpc://scoring.example:8500/", "scoring.example:8500"),
        (" [::1]:8500 ", "[::1]:8500"),
    ],
)
def test_addresses_are_read_with_and_without_a_scheme(given: str, meant: str) -> None:
    assert address(given) == meant


@pytest.mark.parametrize(
    "given", ["", "127.0.0.1", "8500", ":8500", "host:", "host:0", "host:70000", "host:http", "https://host:8500", "ftp://a:1"]
)
def test_what_is_no_grpc_address_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(LoadError, match=r"HOST:PORT, such as 127\.0\.0\.1:8500"):
        address(given)


def test_a_served_model_is_described(server: Endpoint) -> None:
    target = inspect(server.address, "cnn4", "serving_default", 10)
    assert (target.model, target.version, target.input_name, target.image_size, target.output_name) == ("cnn4", 1, "images", 784, "classes")


def test_the_embedded_server_says_what_it_is(server: Endpoint) -> None:
    assert inspect(server.address, "cnn2", "serving_default", 10).endpoint == server
    assert server.engine == "embedded"


def test_a_server_that_says_nothing_of_itself_is_unknown_and_not_guessed(data: Mnist) -> None:
    with running(data) as peer:
        endpoint = inspect(peer.address, "cnn2", "serving_default", 10).endpoint
    assert endpoint == Endpoint(peer.address)
    assert endpoint.engine == "unknown"


def test_a_wrong_model_or_signature_is_refused_with_what_there_is(server: Endpoint) -> None:
    with pytest.raises(LoadError, match="no model 'cnn9'"):
        inspect(server.address, "cnn9", "serving_default", 10)
    with pytest.raises(LoadError, match=r"no signature 'other' \(it has: serving_default\)"):
        inspect(server.address, "cnn2", "other", 10)


def test_it_waits_until_the_model_is_available(data: Mnist) -> None:
    with running(data, ready_after_s=1.5) as peer:
        begun = time.monotonic()
        assert inspect(peer.address, "cnn2", "serving_default", 20).version == 1
        assert time.monotonic() - begun >= 1.0
        assert peer.calls == 0


def test_a_model_that_never_becomes_available_is_refused_after_the_limit(data: Mnist) -> None:
    with running(data, ready_after_s=1000) as peer, pytest.raises(LoadError, match="no version of cnn2 became AVAILABLE"):
        inspect(peer.address, "cnn2", "serving_default", 1)


def test_a_port_where_nothing_answers_is_refused_after_the_limit() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(LoadError, match=r"nothing answers gRPC at .*'make serve'"):
            inspect(f"127.0.0.1:{closed.getsockname()[1]}", "cnn2", "serving_default", 0.5)
