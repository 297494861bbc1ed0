"""The embedded server as a process: when its ports open, where it listens, how it refuses to start, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from serving.endpoint import Endpoint
from serving.errors import ServingError
from serving.launch import embedded_server
from tests.conftest import run_module
from tests.serving.building import PREDICT, WARMUP, X, add_warm_up, call, connect, request_for, scoring, times, write_model, zeros

START_S = 120


pytestmark = pytest.mark.slow  # every test starts a server


@dataclass
class Running:
    """A `python -m serving` that was started on free ports, and what it has said so far."""

    process: subprocess.Popen[bytes]
    log: Path
    ready_file: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ready(self) -> Endpoint:
        """Waits until it says that it is ready."""
        deadline = time.monotonic() + START_S
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return Endpoint.from_json(self.ready_file.read_text())

    def ends(self, within_s: float) -> int:
        """Its exit status."""
        status = self.process.wait(within_s)
        assert "Traceback" not in self.said
        return status


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers that are gone when the test is over."""
    with contextlib.ExitStack() as stack:

        def run(models: Path, *flags: str) -> Running:
            log, ready_file = tmp_path / "log", tmp_path / "ready" / "endpoint.json"
            command = [sys.executable, "-m", "serving", f"--models={models}", "--port=0", "--rest_api_port=0", f"--ready-file={ready_file}"]
            output = stack.enter_context(log.open("wb"))
            process = subprocess.Popen([*command, *flags], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return Running(process, log, ready_file)

        yield run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder with three small versions, each of which multiplies by its own number."""
    folder = tmp_path_factory.mktemp("models")
    for version in (1, 2, 10):
        write_model(folder / "tiny" / str(version), times(version))
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def rest_status(address: str | None, path: str) -> tuple[int, Any]:
    assert address is not None
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def tiny_answer(address: str) -> tuple[int, list[list[float]]]:
    """The version that a server's `tiny` model answers with, and its answer to ones."""
    with connect(address) as channel:
        raw = call(channel, PREDICT, request_for("tiny", x=X))
    response = predict_pb2.PredictResponse.FromString(raw)
    return response.model_spec.version.value, tf.make_ndarray(response.outputs["y"]).tolist()


# Start


def test_ports_refuse_until_every_model_answers_and_answer_from_the_first_moment(artifacts: Path, start: Start) -> None:
    port, rest_port = free_port(), free_port()
    running = start(artifacts / "models", f"--port={port}", f"--rest_api_port={rest_port}")
    refused, deadline = 0, time.monotonic() + START_S
    while not accepts(port):
        assert not accepts(rest_port) or accepts(port)
        assert time.monotonic() < deadline
        refused += 1
        time.sleep(0.005)
    with connect(f"127.0.0.1:{port}") as channel:
        for model in ("cnn4", "cnn2"):
            call(channel, PREDICT, scoring(zeros(1, 784), model=model), timeout=2)
    for model in ("cnn4", "cnn2"):
        status, said = rest_status(f"127.0.0.1:{rest_port}", f"/v1/models/{model}")
        assert (status, said["model_version_status"][0]["state"]) == (200, "AVAILABLE")
    assert refused > 10
    assert "cnn4 version 1 loaded, 4 warm-up requests" in running.said


@pytest.mark.parametrize(
    ("flags", "addresses", "shown"),
    [
        ((), ["127.0.0.1", "127.0.0.1"], "127.0.0.1"),
        (("--host=localhost",), ["127.0.0.1", "127.0.0.1"], "127.0.0.1"),
        (("--host=::1",), ["::1", "::1"], "[::1]"),
        (("--rest_api_port=-1",), ["127.0.0.1"], "127.0.0.1"),
    ],
    ids=["by default", "localhost", "IPv6", "without REST"],
)
def test_it_listens_on_loopback_only_and_serves_the_newest_version(
    tiny: Path, start: Start, flags: tuple[str, ...], addresses: list[str], shown: str
) -> None:
    running = start(tiny, *flags)
    endpoint = running.ready()
    listening = [each for each in psutil.Process(running.process.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    ips = [ipaddress.ip_address(each.laddr.ip) for each in listening]
    assert [str(getattr(ip, "ipv4_mapped", None) or ip) for ip in ips] == addresses
    ports = [address.rpartition(":")[2] for address in (endpoint.address, endpoint.rest_address) if address]
    assert sorted(ports) == sorted(str(each.laddr.port) for each in listening)
    assert endpoint.address.rpartition(":")[0] == shown
    assert tiny_answer(endpoint.address) == (10, [[10.0] * 3] * 2)
    if endpoint.rest_address:
        assert rest_status(endpoint.rest_address, "/v1/models/tiny")[0] == 200


def test_every_interface_is_listened_on_only_when_asked_for(tiny: Path, start: Start) -> None:
    running = start(tiny, "--host=0.0.0.0")
    running.ready()
    listening = [each for each in psutil.Process(running.process.pid).net_connections() if each.status == psutil.CONN_LISTEN]
    assert len(listening) == 2
    assert all(ipaddress.ip_address(each.laddr.ip).is_unspecified for each in listening)


def test_the_ready_file_appears_whole_and_goes_with_the_server(tiny: Path, start: Start) -> None:
    running = start(tiny)
    text = ""
    deadline = time.monotonic() + START_S
    while not text:
        assert time.monotonic() < deadline
        with contextlib.suppress(FileNotFoundError):
            text = running.ready_file.read_text()
            Endpoint.from_json(text)  # whenever the file is there, all of it is
    assert [child.name for child in running.ready_file.parent.iterdir()] == ["endpoint.json"]
    assert stat.S_IMODE(running.ready_file.stat().st_mode) == 0o644
    running.process.terminate()
    assert running.ends(20) == 0
    assert list(running.ready_file.parent.iterdir()) == []


# Refusing to start


def nothing(tmp_path: Path, artifacts: Path) -> Path:
    return tmp_path / "none"


def empty(tmp_path: Path, artifacts: Path) -> Path:
    (tmp_path / "models" / "cnn2" / "1.tmp").mkdir(parents=True)
    return tmp_path / "models"


def without_weights(tmp_path: Path, artifacts: Path) -> Path:
    models = shutil.copytree(artifacts / "models", tmp_path / "models")
    next((models / "cnn4" / "1" / "variables").glob("*.data-*")).unlink()
    return models


def damaged_warm_up(tmp_path: Path, artifacts: Path) -> Path:
    models = shutil.copytree(artifacts / "models", tmp_path / "models")
    warm_up = models / "cnn2" / "1" / WARMUP
    warm_up.write_bytes(warm_up.read_bytes()[:-5])
    return models


def failing_warm_up(tmp_path: Path, artifacts: Path) -> Path:
    version = write_model(tmp_path / "models" / "tiny" / "1", times(2))
    add_warm_up(version, request_for("tiny", x=np.ones((1, 4), np.float32)))
    return tmp_path / "models"


def own_words(stderr: str) -> list[str]:
    """What the server itself said, without TensorFlow's own log and without its notes on models that did load."""
    lines = [line for line in stderr.splitlines() if line.startswith("serving: ")]
    return [line.removeprefix("serving: ") for line in lines if " loaded, " not in line]


def assert_refused_in_one_line(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.returncode == 2
    (line,) = own_words(done.stderr)
    assert said in line
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (nothing, "run 'make train export' first, or give --models DIR"),
        (empty, "no exported version below"),
        (without_weights, "cnn4 version 1 can't be loaded: "),
        (damaged_warm_up, "cnn2 version 1 fails its warm-up: "),
        (failing_warm_up, "tiny version 1 fails its warm-up: input x has shape [1,4], the signature says [?,3]"),
    ],
)
def test_models_that_cannot_be_served_are_said_in_one_line(
    tmp_path: Path, artifacts: Path, models: Callable[[Path, Path], Path], said: str
) -> None:
    done = run_module("serving", f"--models={models(tmp_path, artifacts)}", "--port=0", "--rest_api_port=0")
    assert_refused_in_one_line(done, said)


def port_of(address: str | None) -> str:
    assert address is not None
    return address.rpartition(":")[2]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (lambda first: [f"--port={port_of(first.address)}", "--rest_api_port=0"], "for gRPC: stop what uses it or give --port"),
        (
            # A name with several addresses: that one of them is still free must not do.
            lambda first: ["--host=localhost", f"--port={port_of(first.address)}", "--rest_api_port=0"],
            "for gRPC: stop what uses it or give --port",
        ),
        (lambda first: ["--host=0.0.0.0", f"--port={port_of(first.address)}", "--rest_api_port=0"], "for gRPC: stop what uses it"),
        (
            lambda first: ["--port=0", f"--rest_api_port={port_of(first.rest_address)}"],
            "for REST (Address already in use): stop what uses it or give --rest_api_port",
        ),
        (lambda first: ["--port=0", f"--rest_api_port={port_of(first.address)}"], "for REST (Address already in use)"),
        (lambda _: ["--host=nosuch.invalid", "--port=0"], "give --host an address of this machine"),
        (lambda _: ["--port=0", "--rest_api_port=0", "--ready-file=/proc/none/ready"], "choose another --ready-file"),
    ],
    ids=["gRPC", "gRPC by name", "gRPC on every interface", "REST", "REST on another's gRPC port", "unknown host", "ready file"],
)
def test_what_it_cannot_have_is_said_in_one_line_and_the_server_that_has_it_goes_on(
    server: Endpoint, tiny: Path, flags: Callable[[Endpoint], list[str]], said: str
) -> None:
    done = run_module("serving", f"--models={tiny}", *flags(server))
    assert done.returncode == 2
    (line,) = own_words(done.stderr)
    assert said in line
    assert "Traceback" not in done.stderr
    with connect(server.address) as channel:
        call(channel, PREDICT, scoring())


@pytest.mark.parametrize(
    "flags",
    [
        ["--nosuch"],
        ["--model=x"],
        ["--rest_api_prt=8501"],
        ["--port=many"],
        ["--port=-1"],
        ["--port=65536"],
        ["--rest_api_port=99999"],
        ["--grpc_max_threads=0"],
        ["--tensorflow_session_parallelism=-1"],
        ["stray"],
    ],
    ids=" ".join,
)
def test_a_flag_that_it_does_not_have_or_that_makes_no_sense_is_refused(flags: list[str]) -> None:
    done = run_module("serving", *flags)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m serving")
    assert "error: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_names_every_flag_with_its_default() -> None:
    done = run_module("serving", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for flag in ("--models", "--host", "--port", "--rest_api_port", "--grpc_max_threads", "--grace", "--ready-file", "--stop-with-stdin"):
        assert flag in done.stdout
    assert "(default: 127.0.0.1)" in done.stdout


# End


def test_told_to_stop_it_answers_every_request_that_runs(artifacts: Path, start: Start) -> None:
    running = start(artifacts / "models", "--grace=60")
    endpoint = running.ready()
    request = scoring(zeros(128, 784), model="cnn4").SerializeToString()
    with connect(endpoint.address) as channel:
        ask = channel.unary_unary("/tensorflow.serving." + PREDICT)
        futures = [ask.future(request, timeout=60) for _ in range(24)]
        while not any(future.done() for future in futures):
            time.sleep(0.005)
        running.process.terminate()
        assert not all(future.done() for future in futures)
        begin = time.monotonic()
        assert [future.code() for future in futures] == [grpc.StatusCode.OK] * 24
        for future in futures:
            assert len(predict_pb2.PredictResponse.FromString(future.result()).outputs["classes"].int64_val) == 128
        took = time.monotonic() - begin
    assert running.ends(10) == 0
    assert took < 60
    assert not accepts(int(port_of(endpoint.address)))
    assert not accepts(int(port_of(endpoint.rest_address)))


def test_requests_that_outlast_the_grace_end_with_a_code_and_the_server_with_0(artifacts: Path, start: Start) -> None:
    running = start(artifacts / "models", "--grace=0.2")
    endpoint = running.ready()
    request = scoring(zeros(1024, 784), model="cnn4").SerializeToString()
    with connect(endpoint.address) as channel:
        ask = channel.unary_unary("/tensorflow.serving." + PREDICT)
        futures = [ask.future(request, timeout=60) for _ in range(24)]
        time.sleep(0.5)
        running.process.terminate()
        codes = {future.code() for future in futures}
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert codes != {grpc.StatusCode.OK}
    assert running.ends(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clients_that_are_connected_and_idle_do_not_delay_its_end(tiny: Path, start: Start, number: signal.Signals) -> None:
    running = start(tiny)
    endpoint = running.ready()
    assert endpoint.rest_address is not None
    host, port = endpoint.rest_address.split(":")
    with connect(endpoint.address) as channel, socket.create_connection((host, int(port))) as silent:
        call(channel, PREDICT, request_for("tiny", x=X))
        silent.sendall(b"GET /v1/mod")
        running.process.send_signal(number)
        assert running.ends(8) == 0  # less than its grace
    assert "serving: stopping" in running.said


def test_a_signal_that_the_system_hands_to_another_thread_ends_it_too(tiny: Path, start: Start) -> None:
    running = start(tiny)
    running.ready()
    other = max(thread.id for thread in psutil.Process(running.process.pid).threads())
    os.kill(other, signal.SIGTERM)  # to the process by the number of a thread: Linux lets that thread have it
    assert running.ends(8) == 0


def test_told_to_stop_while_it_loads_it_ends_and_leaves_nothing(tiny: Path, start: Start) -> None:
    running = start(tiny)
    time.sleep(1)
    running.process.terminate()
    assert running.ends(START_S) in (0, -signal.SIGTERM)  # by the signal, where it had not yet come to handling it
    assert not running.ready_file.exists()


def test_it_ends_with_the_process_that_started_it_however_that_ends(tiny: Path, tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time; from serving.launch import embedded_server\n"
        "with embedded_server(pathlib.Path(sys.argv[1])) as endpoint: print(endpoint.address, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tiny)], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as parent:
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        (child,) = psutil.Process(parent.pid).children()
        assert tiny_answer(address)[0] == 10
        parent.kill()
        gone, alive = psutil.wait_procs([child], timeout=20)
        assert (len(gone), alive) == (1, [])
    assert not accepts(int(port_of(address)))


def test_the_launcher_stops_the_server_when_its_block_ends_in_an_error(tiny: Path) -> None:
    seen = []

    def fail(endpoint: Endpoint) -> None:
        seen.append(endpoint)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), embedded_server(tiny, ["--grace=1"]) as endpoint:
        fail(endpoint)
    assert "--grace=1" in seen[0].flags
    assert not accepts(int(port_of(seen[0].address)))


def test_the_launcher_passes_on_why_a_server_did_not_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ServingError, match=r"^the embedded server ended with status 2: no models at .*: run 'make train export' first"),
        embedded_server(tmp_path / "none"),
    ):
        pytest.fail("it started")


def test_the_launcher_gives_up_a_server_that_does_not_get_ready_and_ends_it(tiny: Path) -> None:
    with pytest.raises(ServingError, match="not ready within 1 s"), embedded_server(tiny, ready_within_s=0.6):
        pytest.fail("it started")
    assert not [child for child in psutil.Process().children() if f"--models={tiny}" in child.cmdline()]


def test_a_client_that_pings_every_five_seconds_keeps_its_connection(server: Endpoint) -> None:
    # grpc's own servers close a connection with "too_many_pings" at the fourth ping of a client that asks nothing.
    pings = [("grpc.keepalive_time_ms", 5000), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    states: list[grpc.ChannelConnectivity] = []
    with connect(server.address, *pings) as channel:
        call(channel, PREDICT, scoring())
        channel.subscribe(states.append)
        time.sleep(22)
        assert states == [grpc.ChannelConnectivity.READY]
        call(channel, PREDICT, scoring())
