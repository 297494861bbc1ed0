"""How requests reach a server: one small interface, one implementation a module-level class.

A channel sends bytes that were made before the clock started and returns bytes; what is in them is not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from loadtest.errors import LoadError

PREDICT = "/tensorflow.serving.PredictionService/Predict"
OK = 0
UNKNOWN = 2
_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}

_OPTIONS = [
    # A proxy variable of the shell would capture even loopback addresses.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A connection of its own for each channel; grpc would share one between channels to the same address.
    ("grpc.use_local_subchannel_pool", 1),
    # After a server's restart grpc would wait up to two minutes, which would be measured as an outage.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a call: gRPC code (0 is OK), its text, and the reply's bytes where the code is OK."""

    code: int
    text: str = ""
    payload: bytes = b""


class Channel(Protocol):
    """What every channel can do."""

    def connect(self, timeout_s: float) -> None:
        """Opens the connection. Raises LoadError if it isn't open within `timeout_s`."""

    def predict(self, request: bytes, deadline_s: float) -> Reply:
        """Sends one Predict request and waits for its outcome, `deadline_s` at most; never raises for a failed call."""

    def close(self) -> None:
        """Closes the connection."""


def code_name(code: int) -> str:
    """The name of a gRPC code, such as UNAVAILABLE for 14."""
    return _CODE_NAMES.get(code, f"CODE_{code}")


class GrpcioChannel:
    """The `grpcio` library, one connection per channel."""

    def __init__(self, target: str) -> None:
        """A channel to `target` (host:port); nothing is sent before `connect`."""
        self.target = target
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._predict: Any = self._channel.unary_unary(PREDICT)

    def connect(self, timeout_s: float) -> None:
        """Opens the connection. Raises LoadError if it isn't open within `timeout_s`."""
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout_s)
        except grpc.FutureTimeoutError:
            raise LoadError(
                f"nothing answers gRPC at {self.target} (waited {timeout_s:g} s): start one with 'make serve', or name another by --host"
            ) from None
        finally:
            ready.cancel()

    def predict(self, request: bytes, deadline_s: float) -> Reply:
        """Sends one Predict request and waits for its outcome, `deadline_s` at most; never raises for a failed call."""
        try:
            return Reply(OK, "", self._predict(request, timeout=deadline_s))
        except grpc.RpcError as failed:
            return _failure(failed)

    def ask(self, method: str, request: bytes, deadline_s: float) -> tuple[Reply, Mapping[str, bytes]]:
        """Calls any unary method by its full name; returns the outcome and the reply's initial metadata."""
        try:
            call: Any = self._channel.unary_unary(method)
            payload, done = call.with_call(request, timeout=deadline_s)
        except grpc.RpcError as failed:
            return _failure(failed), {}
        return Reply(OK, "", payload), {str(key): value for key, value in done.initial_metadata()}

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()


def _failure(failed: Any) -> Reply:
    code = failed.code()
    return Reply(code.value[0] if code is not None else UNKNOWN, failed.details() or "")


CHANNELS = {"grpcio": GrpcioChannel}


def use_gevent() -> None:
    """Lets grpcio wait in gevent's loop; without it one call blocks every user of the process.

    To be called before the first channel, in the process that uses it.
    """
    from grpc.experimental import gevent as grpc_gevent

    grpc_gevent.init_gevent()
