from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from serving.endpoint import Endpoint

PATIENCE_S = 10  # less than the 30 s after which the server gives up a silent client


@pytest.fixture
def rest(server: Endpoint) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(server.rest_address, timeout=PATIENCE_S)
    yield connection
    connection.close()


def ask(rest: http.client.HTTPConnection, verb: str, path: str, body: str | bytes | None = None) -> tuple[int, str, bytes]:
    rest.request(verb, path, body)
    response = rest.getresponse()
    return response.status, response.headers["Content-Type"], response.read()


def error(answer: tuple[int, str, bytes]) -> tuple[int, str]:
    """Status and text of an answer that is an error in TensorFlow Serving's form: an object whose only key is `error`."""
    status, kind, body = answer
    assert kind == "application/json"
    assert list(json.loads(body)) == ["error"]
    return status, json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/v1/models/cnn2", "/v1/models/cnn4/versions/1", "/V1/Models/cnn2", "/v1/MODELS/cnn2/Versions/1"])
def test_the_status_of_a_served_model_has_tensorflow_servings_form(rest: http.client.HTTPConnection, path: str) -> None:
    status, kind, body = ask(rest, "GET", path)
    assert (status, kind) == (HTTPStatus.OK, "application/json")
    available = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert json.loads(body) == {"model_version_status": [available]}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/models/nosuch", "Could not find any versions of model nosuch"),
        ("/v1/models/CNN2", "Could not find any versions of model CNN2"),
        ("/v1/models/cnn2/versions/9", "Could not find version 9 of model cnn2"),
        ("/v1/models/cnn2/versions/0", "Could not find version 0 of model cnn2"),
        ("/v1/models/nosuch/versions/1", "Could not find version 1 of model nosuch"),
    ],
)
def test_an_unknown_model_or_version_is_not_found(rest: http.client.HTTPConnection, path: str, text: str) -> None:
    assert error(ask(rest, "GET", path)) == (HTTPStatus.NOT_FOUND, text)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v1/junk"),
        ("GET", "/V1/junk"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/"),
        ("GET", "/v1/models/cnn2/"),
        ("GET", "/v1/models/cnn2:predict"),
        ("GET", "/v1/models/cnn2/versions/one"),
        ("GET", "/v1/models/cnn2/versions/-1"),
        ("GET", "/v1/models/cnn2/versions/"),
        ("GET", "/v1/models/cnn2/versions/99999999999999999999"),
        ("POST", "/v1/models/cnn2"),
        ("POST", "/v1/models/cnn2:nosuch"),
        ("POST", "/v1/junk"),
    ],
)
def test_other_paths_below_v1_are_malformed(rest: http.client.HTTPConnection, verb: str, path: str) -> None:
    body = "{}" if verb == "POST" else None
    assert error(ask(rest, verb, path, body)) == (HTTPStatus.BAD_REQUEST, f"Malformed request: {verb} {path}")


@pytest.mark.parametrize("path", ["/", "/index.html", "/v2/models/cnn2", "/models/cnn2"])
@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_paths_outside_v1_are_not_found_in_html(rest: http.client.HTTPConnection, verb: str, path: str) -> None:
    status, kind, body = ask(rest, verb, path, "{}" if verb == "POST" else None)
    assert (status, kind) == (HTTPStatus.NOT_FOUND, "text/html")
    assert body.startswith(b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>")


@pytest.mark.parametrize(
    "path", ["/v1/models/cnn2:predict", "/v1/models/cnn2/versions/1:predict", "/v1/models/cnn2/labels/stable:classify"]
)
@pytest.mark.parametrize("images", [1, 500])
def test_a_prediction_is_refused_in_words_that_name_the_grpc_port(rest: http.client.HTTPConnection, path: str, images: int) -> None:
    body = json.dumps({"instances": [[0.0] * 784] * images})
    status, text = error(ask(rest, "POST", path, body))
    assert status == HTTPStatus.NOT_IMPLEMENTED
    assert "embedded server" in text
    assert "gRPC port" in text


def test_a_connection_answers_several_requests(rest: http.client.HTTPConnection) -> None:
    assert ask(rest, "GET", "/v1/models/cnn2")[0] == HTTPStatus.OK
    first = rest.sock
    assert ask(rest, "GET", "/v1/models/nosuch")[0] == HTTPStatus.NOT_FOUND
    assert ask(rest, "GET", "/v1/models/cnn4")[0] == HTTPStatus.OK
    assert rest.sock is first


def test_a_client_whose_prediction_was_refused_can_go_on(rest: http.client.HTTPConnection) -> None:
    assert ask(rest, "POST", "/v1/models/cnn2:predict", "{}")[0] == HTTPStatus.NOT_IMPLEMENTED
    assert ask(rest, "GET", "/v1/models/cnn2")[0] == HTTPStatus.OK


@pytest.mark.parametrize("sent", [b"", b"GET /v1/mod", b"POST /v1/models/cnn2:predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{"])
def test_clients_that_send_nothing_or_half_a_request_hold_up_nobody(
    server: Endpoint, rest: http.client.HTTPConnection, sent: bytes
) -> None:
    assert server.rest_address is not None
    host, port = server.rest_address.split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(50)]
    for client in slow:
        client.sendall(sent)
    begin = time.monotonic()
    assert ask(rest, "GET", "/v1/models/cnn2")[0] == HTTPStatus.OK
    assert time.monotonic() - begin < 5
    for client in slow:
        client.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\x00\xff\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/models/cnn2 HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"POST /v1/models/cnn2:predict HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/models/cnn2:predict HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ],
    ids=["binary", "HTTP/2", "TLS", "long path", "many headers", "a length that is no number", "a negative length"],
)
def test_bytes_that_are_no_request_harm_nothing(server: Endpoint, rest: http.client.HTTPConnection, sent: bytes) -> None:
    assert server.rest_address is not None
    host, port = server.rest_address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        try:
            said = client.recv(100)
        except ConnectionResetError:
            said = b""
    assert b" 200 " not in said
    assert ask(rest, "GET", "/v1/models/cnn2")[0] == HTTPStatus.OK


def test_a_hundred_requests_at_once_are_all_answered(server: Endpoint) -> None:
    def get(number: int) -> int:
        connection = http.client.HTTPConnection(server.rest_address, timeout=PATIENCE_S)
        try:
            return ask(connection, "GET", "/v1/models/cnn2" if number % 2 else "/v1/models/nosuch")[0]
        finally:
            connection.close()

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert list(pool.map(get, range(100))) == [HTTPStatus.NOT_FOUND, HTTPStatus.OK] * 50
