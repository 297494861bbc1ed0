"""The locustfile under the real `locust` command, against a server that behaves and misbehaves as told."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from serving.endpoint import Endpoint
from tests.loadtest.conftest import LOCUST, Load
from tests.loadtest.peer import Peer, after, running, well
from train.mnist import Mnist

pytestmark = pytest.mark.slow


def test_a_run_leaves_raw_samples_and_a_cell_that_agree(load: Load, server: Endpoint) -> None:
    ran = load.locust(server.address, "--model", "cnn4", "--batch-size", "8", "--label", "agree")
    assert ran.status == 0, ran.output
    cell, rows = ran.cell, ran.rows
    assert (cell["model"], cell["batch_size"], cell["concurrency"], cell["model_version"], cell["mode"]) == ("cnn4", 8, 2, 1, "closed")
    (window,) = cell["windows"]
    counted = rows[(rows["sent_ns"] >= window["start_ns"]) & (rows["sent_ns"] < window["end_ns"])]
    assert len(counted) == cell["sent"] == cell["ok"] > 0
    latencies = np.sort(counted["done_ns"] - counted["sent_ns"])
    assert cell["service_ms"]["max"] == latencies[-1] / 1e6
    assert cell["service_ms"] == cell["response_ms"]
    assert cell["images_per_s"] == pytest.approx(8 * cell["requests_per_s"])
    assert len(rows) > len(counted)  # the warm-up's are there too
    assert cell["accuracy"] == counted["correct"].sum() / (8 * len(counted))
    assert ran.run["server"]["engine"] == "embedded"
    assert ran.run["complete"] is True
    assert ran.folder is not None
    assert ran.folder.name.endswith("-agree")


def test_users_wait_side_by_side_and_not_one_after_the_other(load: Load, data: Mnist) -> None:
    with running(data, after(0.05)) as peer:
        ran = load.locust(peer.address, users=20, seconds=4)
    assert ran.cell["requests_per_s"] >= 300
    assert ran.cell["valid"], ran.cell["reasons"]


def test_each_user_has_one_connection_of_its_own(load: Load, data: Mnist) -> None:
    with running(data, after(0.01)) as peer:
        load.locust(peer.address, users=5)
        assert len(peer.connections) == 5


def test_no_request_of_the_window_pays_for_a_connection(load: Load, data: Mnist) -> None:
    with running(data) as peer:
        latencies = load.locust(peer.address, users=1).cell["service_ms"]
    assert 0 < latencies["mean"] < 20
    assert latencies["p95"] < 5 * latencies["p50"]


def test_latencies_over_a_second_are_not_folded(load: Load, data: Mnist) -> None:
    with running(data, after(1.25)) as peer:
        ran = load.locust(peer.address, "--warmup", "0.2", users=4, seconds=4)
    assert 1250 <= ran.cell["service_ms"]["min"] < 1400


def test_requests_that_run_when_the_window_ends_are_drained_and_counted(load: Load, data: Mnist) -> None:
    with running(data, after(2.5)) as peer:
        ran = load.locust(peer.address, "--warmup", "0", users=10, seconds=4)
    cell = ran.cell
    assert (cell["ok"], cell["failed"], cell["abandoned"]) == (cell["sent"], 0, 0)
    assert cell["sent"] >= 15
    assert len(ran.rows) == peer.calls


def test_timeouts_are_failures_with_their_code_and_never_latencies(load: Load, data: Mnist) -> None:
    with running(data, after(0.2)) as peer:
        ran = load.locust(peer.address, "--deadline", "0.02")
    cell = ran.cell
    assert cell["errors"] == {"DEADLINE_EXCEEDED": cell["sent"]}
    assert (cell["ok"], cell["service_ms"]["mean"]) == (0, None)
    assert not cell["valid"]
    assert ran.status == 1


def test_a_server_that_never_replies_ends_at_the_default_deadline(load: Load, data: Mnist) -> None:
    done = threading.Event()

    def never(_peer: Peer, _raw: bytes, _number: int) -> grpc.StatusCode:
        done.wait(60)
        return grpc.StatusCode.ABORTED

    with running(data, never) as peer:
        begun = time.monotonic()
        ran = load.locust(peer.address, "--warmup", "0", seconds=3)
        done.set()
    assert ran.cell["errors"] == {"DEADLINE_EXCEEDED": 2}
    assert time.monotonic() - begun < 30


def test_every_grpc_code_keeps_its_name(load: Load, data: Mnist) -> None:
    codes = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]

    def each(_peer: Peer, _raw: bytes, number: int) -> grpc.StatusCode:
        return codes[number % len(codes)]

    with running(data, each) as peer:
        ran = load.locust(peer.address)
    assert set(ran.cell["errors"]) == {code.name for code in codes}
    assert sum(ran.cell["errors"].values()) == ran.cell["failed"] == ran.cell["sent"]
    assert any("injected UNAVAILABLE" in note for note in ran.cell["notes"]), ran.cell["notes"]


def test_dropped_requests_leave_accuracy_alone_and_show_as_failures(load: Load, data: Mnist) -> None:
    def half(peer: Peer, raw: bytes, number: int) -> bytes | grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE if number % 2 else well(peer, raw, number)

    with running(data, half) as peer:
        ran = load.locust(peer.address)
    cell = ran.cell
    assert cell["accuracy"] == 1.0
    assert cell["sent"] == cell["ok"] + cell["failed"]
    assert 0.4 < cell["failed"] / cell["sent"] < 0.6
    assert ran.status == 1
    assert f"{cell['failed']} failed" in ran.output


def test_an_ok_reply_that_is_no_answer_is_a_failure(load: Load, data: Mnist) -> None:
    def garbage(peer: Peer, raw: bytes, number: int) -> bytes:
        return [b"", b"\xff\xff", peer.reply(raw)[:-3]][number % 3]

    with running(data, garbage) as peer:
        ran = load.locust(peer.address)
    assert ran.cell["errors"] == {"UNUSABLE_REPLY": ran.cell["sent"]}


def test_a_server_that_answers_wrongly_has_no_valid_accuracy(load: Load, data: Mnist) -> None:
    with running(data, lambda peer, raw, _: peer.reply(raw, wrong=True)) as peer:
        ran = load.locust(peer.address)
    assert ran.cell["accuracy"] == 0


def test_replies_of_two_versions_are_noticed(load: Load, data: Mnist) -> None:
    with running(data, lambda peer, raw, number: peer.reply(raw, version=1 + number % 2)) as peer:
        ran = load.locust(peer.address)
    assert any("several versions" in reason for reason in ran.cell["reasons"])


def test_proxy_variables_are_passed_by_and_that_is_said(load: Load, data: Mnist) -> None:
    dead = "http://127.0.0.1:9"
    with running(data) as peer:
        ran = load.locust(peer.address, env={"http_proxy": dead, "grpc_proxy": dead})
    assert ran.cell["ok"] == ran.cell["sent"] > 0
    assert any("proxy variables" in note for note in ran.run["notes"])


def test_it_waits_for_a_server_that_is_still_loading(load: Load, data: Mnist) -> None:
    with running(data, ready_after_s=5) as peer:
        ran = load.locust(peer.address)
    assert ran.cell["failed"] == 0
    assert ran.status == 0, ran.output


def test_large_batches_pass_in_both_directions(load: Load, server: Endpoint) -> None:
    ran = load.locust(server.address, "--batch-size", "2048", "--warmup", "1", users=1, seconds=5)
    assert ran.cell["ok"] == ran.cell["sent"] > 0
    assert ran.cell["request_bytes"] > 2048 * 784 * 4


def test_processes_are_merged_into_one_run(load: Load, data: Mnist) -> None:
    with running(data, after(0.02)) as peer:
        ran = load.locust(peer.address, "--processes", "2", users=4, seconds=4)
    assert ran.status == 0, ran.output
    assert set(ran.rows["worker"]) == {0, 1}
    assert len(ran.cell["windows"]) == 2
    assert ran.run["client"]["processes"] == 2
    assert ran.cell["concurrency"] == 4
    assert len(ran.rows) == peer.calls
    assert ran.cell["valid"], ran.cell["reasons"]


def _master_and_workers(load: Load, address: str, seconds: float, port: int) -> list:
    where = ["--host", address, "--artifacts", str(load.artifacts), "--out", str(load.out)]
    common = [str(LOCUST), "-f", "loadtest/score.py"]
    master = [
        *common,
        "--master",
        "--headless",
        "--expect-workers",
        "2",
        "-u",
        "4",
        "-r",
        "4",
        "-t",
        f"{seconds}s",
        "--master-bind-port",
        str(port),
    ]
    workers = [[*common, "--worker", "--master-port", str(port), "--artifacts", str(load.artifacts)] for _ in range(2)]
    return [load.popen([*master, *where]), *(load.popen(worker) for worker in workers)]


def test_a_master_with_workers_collects_every_sample_of_both(load: Load, data: Mnist, free_port: int) -> None:
    with running(data, after(0.02)) as peer:
        master, *workers = _master_and_workers(load, peer.address, 4, free_port)
        ran = load.finish(master)
        for worker in workers:
            load.finish(worker)
    assert ran.status == 0, ran.output
    assert len(ran.rows) == peer.calls
    assert set(ran.rows["worker"]) == {0, 1}
    assert ran.run["complete"] is True


def test_a_lost_worker_makes_the_run_incomplete_and_not_quietly_smaller(load: Load, data: Mnist, free_port: int) -> None:
    with running(data, after(0.02)) as peer:
        master, *workers = _master_and_workers(load, peer.address, 9, free_port)
        time.sleep(7)
        os.killpg(workers[0].pid, signal.SIGKILL)
        ran = load.finish(master)
        for worker in workers:
            load.finish(worker)
    assert ran.run["complete"] is False
    assert any("was lost" in reason for reason in ran.cell["reasons"])
    assert ran.status == 1


def test_the_web_page_leaves_a_run_for_every_test_with_what_was_asked_there(load: Load, data: Mnist, free_port: int) -> None:
    with running(data, after(0.005)) as peer:
        command = [str(LOCUST), "-f", "loadtest/score.py", "--web-host", "127.0.0.1", "--web-port", str(free_port), "--warmup", "0.5"]
        process = load.popen([*command, "--host", peer.address, "--artifacts", str(load.artifacts), "--out", str(load.out)])
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def ask(path: str, **form: object) -> bytes:
            body = urllib.parse.urlencode(form).encode() if form else None
            with opener.open(f"http://127.0.0.1:{free_port}{path}", body, timeout=30) as answer:
                return answer.read()

        for _ in range(100):
            try:
                assert b"locust" in ask("/").lower()
                break
            except OSError:
                time.sleep(0.2)
        for batch_size in (1, 8):
            ask("/swarm", user_count=2, spawn_rate=2, host=peer.address, batch_size=batch_size)
            time.sleep(3)
            ask("/stop", x="")
            time.sleep(1)
        process.send_signal(signal.SIGINT)
        output = load.finish(process).output
    folders = sorted(folder for folder in load.out.iterdir() if not folder.is_symlink())
    cells = [json.loads((folder / "run.json").read_text())["cells"][0] for folder in folders]
    assert [cell["batch_size"] for cell in cells] == [1, 8], output
    assert all(cell["ok"] == cell["sent"] > 0 for cell in cells)
    assert not any("partial" in folder.name for folder in folders)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--model", "nosuch"], r"has no model 'nosuch'"),
        (["--signature", "nosuch"], r"no signature 'nosuch'"),
        (["--batch-size", "0"], r"batch size 0"),
        (["--host", "nowhere"], r"HOST:PORT"),
        (["--label", "a/b"], r"--label is 'a/b'"),
        (["--warmup", "-1"], r"--warmup must not be negative"),
        (["--artifacts", "/nowhere"], r"no MNIST at /nowhere"),
    ],
)
def test_a_users_mistake_is_one_line_and_leaves_nothing(load: Load, data: Mnist, options: list[str], says: str) -> None:
    with running(data) as peer:
        ran = load.locust(peer.address, *options)
        assert peer.calls == 0
    assert ran.status == 2, ran.output
    assert len(re.findall(r"^score: ", ran.output, re.MULTILINE)) == 1
    assert re.search(says, ran.output)
    assert "Traceback" not in ran.output
    assert not load.out.exists() or not list(load.out.iterdir())


def test_a_server_that_is_not_there_is_one_line(load: Load) -> None:
    ran = load.locust("127.0.0.1:9", "--ready-timeout", "1")
    assert ran.status == 2
    assert "nothing answers gRPC at 127.0.0.1:9" in ran.output
    assert "Traceback" not in ran.output


def test_locusts_json_output_does_not_touch_the_run(load: Load, data: Mnist, tmp_path: Path) -> None:
    with running(data, after(0.01)) as peer:
        ran = load.locust(peer.address, "--json", "--json-file", str(tmp_path / "stats"))
    assert len(ran.rows) == peer.calls
    assert ran.cell["ok"] == ran.cell["sent"] > 0


def test_memory_of_a_load_process_stays_small(load: Load, data: Mnist) -> None:
    with running(data) as peer:
        command = [str(LOCUST), "-f", "loadtest/score.py", "--headless", "-u", "2", "-r", "2", "-t", "8s", "--host", peer.address]
        process = load.popen([*command, "--artifacts", str(load.artifacts), "--out", str(load.out)])
        time.sleep(6)
        resident = psutil.Process(process.pid).memory_info().rss
        load.finish(process)
    assert resident < 400 * 2**20, f"{resident / 2**20:.0f} MiB"
