"""The embedded server's REST port: the status of a model, and refusals in TensorFlow Serving's form."""

from __future__ import annotations

import http.server
import json
import re
import socket
from http import HTTPStatus
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tensorflow_serving.apis import get_model_status_pb2

from serving.answers import Models, Refusal, status
from serving.errors import ServingError

# In tensorflow/serving 2.20.0 the match of a path ignores case (http_rest_api_handler.cc).
_STATUS_PATH = re.compile(r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>[0-9]+))?", re.IGNORECASE)
_VERB_PATH = re.compile(r"/v1/models/[^/:]+(/(versions|labels)/[^/:]+)?:(predict|classify|regress)", re.IGNORECASE)
_HTTP = {
    grpc.StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
}
_SECONDS_PER_REQUEST = 30
_DISCARDED_BYTES = 2**24


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections that come at once and are not yet accepted; Python's 5 makes the sixth wait for seconds
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], models: Models) -> None:
        self.models = models
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "timetoscore-embedded"
    timeout = _SECONDS_PER_REQUEST  # a client that sends nothing doesn't hold a thread for ever

    def do_GET(self) -> None:
        """Answers a status request; everything else is refused."""
        match = _STATUS_PATH.fullmatch(self.path)
        if match is None:
            return self._malformed()
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = match["name"]
        try:
            if match["version"]:
                request.model_spec.version.value = int(match["version"])
            return self._json(HTTPStatus.OK, _status_json(status(self.server.models, request)))
        except Refusal as refusal:
            return self._json(_HTTP.get(refusal.code, HTTPStatus.INTERNAL_SERVER_ERROR), {"error": refusal.text})
        except ValueError:  # a version beyond 64 bits
            return self._malformed()

    def do_POST(self) -> None:
        """Refuses what this server does not have."""
        self._discard_body()
        self.close_connection = True
        if _VERB_PATH.fullmatch(self.path):
            self._json(HTTPStatus.NOT_IMPLEMENTED, {"error": "The embedded server answers predictions on its gRPC port only"})
        else:
            self._malformed()

    def _discard_body(self) -> None:
        # Closing with a body unread resets the connection, and the client may never see the answer.
        length = self.headers.get("Content-Length", "")
        remaining = min(int(length), _DISCARDED_BYTES) if re.fullmatch("[0-9]{1,18}", length) else 0
        while remaining > 0 and (part := self.rfile.read(min(remaining, 2**16))):
            remaining -= len(part)

    def _malformed(self) -> None:
        if self.path.lower().startswith("/v1/"):
            self._json(HTTPStatus.BAD_REQUEST, {"error": f"Malformed request: {self.command} {self.path}"})
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/html", b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD></HTML>\n")

    def _json(self, code: HTTPStatus, value: object) -> None:
        self._send(code, "application/json", json.dumps(value, indent=4).encode() + b"\n")

    def _send(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Health probes would fill the log."""


def _status_json(response: Any) -> dict[str, Any]:
    return {
        "model_version_status": [
            {
                "version": str(entry.version),
                "state": MessageToDict(entry)["state"],
                "status": {"error_code": "OK", "error_message": entry.status.error_message},
            }
            for entry in response.model_version_status
        ]
    }


def open_port(host: str, port: int, models: Models) -> _Server:
    """The REST server, listening but not yet answering (`serve_forever` does). Raises ServingError if the port is taken."""
    try:
        return _Server((host, port), models)
    except OSError as problem:
        raise ServingError(
            f"can't listen on {host}:{port} for REST ({problem.strerror}): stop what uses it or give --rest_api_port"
        ) from problem
