"""`python -m loadtest`: plans of cells, measured by real processes on real servers."""

from __future__ import annotations

import csv
import os
import signal
import sys
import time

import pytest

from loadtest.cells import plan
from loadtest.errors import LoadError
from serving.endpoint import Endpoint
from tests.conftest import run_module
from tests.loadtest.conftest import Load
from tests.loadtest.peer import after, running
from train.mnist import Mnist

SHORT = ["--warmup", "0.3", "--window", "1"]


def test_a_plan_is_every_model_at_every_batch_size_at_every_concurrency() -> None:
    cells = plan(["cnn2", "cnn4"], [1, 8, 32, 128], [1, 4])
    assert [cell.id for cell in cells] == list(range(16))
    assert len({(cell.model, cell.batch_size, cell.concurrency) for cell in cells}) == 16


@pytest.mark.parametrize("choice", [([], [1], [1]), (["cnn2"], [], [1]), (["cnn2"], [0], [1]), (["cnn2"], [1], [-1])])
def test_an_empty_or_impossible_plan_is_refused(choice: tuple[list, list, list]) -> None:
    with pytest.raises(LoadError):
        plan(*choice)


@pytest.mark.slow
def test_a_plan_measures_all_cells_of_the_embedded_server(load: Load, server: Endpoint) -> None:
    ran = load.plan(server.address, *SHORT, "--models", "cnn2,cnn4", "--batch-sizes", "1,8", "--concurrency", "1,3", "--label", "all")
    assert ran.status == 0, ran.output
    run = ran.run
    assert run["complete"] is True
    assert [(cell["model"], cell["batch_size"], cell["concurrency"]) for cell in run["cells"]] == [
        (model, batch, users) for model in ("cnn2", "cnn4") for batch in (1, 8) for users in (1, 3)
    ]
    assert all(cell["ok"] == cell["sent"] > 0 for cell in run["cells"])
    assert set(ran.rows["cell"]) == set(range(8))
    assert ran.output.count("requests/s") == 8
    assert run["server"]["engine"] == "embedded"
    assert "tensorflow-serving" not in str(run["server"]).lower()
    assert ran.folder is not None
    with (ran.folder / "summary.csv").open() as table:
        assert [int(line["sent"]) for line in csv.DictReader(table)] == [cell["sent"] for cell in run["cells"]]


@pytest.mark.slow
def test_answers_through_the_server_are_as_right_as_the_training_record_says(load: Load, server: Endpoint) -> None:
    ran = load.plan(server.address, *SHORT, "--models", "cnn2,cnn4", "--batch-sizes", "32", "--concurrency", "1")
    run = ran.run
    for model in ("cnn2", "cnn4"):
        accuracy = run["training"][model]["test_accuracy"]
        said = (
            f"{model} version 1 labels {round(accuracy * 10_000):,} of 10,000 test images right through the server, as its training record"
        )
        assert any(note.startswith(said) for note in run["notes"]), run["notes"]
    for cell in run["cells"]:
        assert cell["accuracy"] == pytest.approx(run["training"][cell["model"]]["test_accuracy"], abs=0.03)


@pytest.mark.slow
def test_a_server_with_wrong_answers_makes_no_valid_cell(load: Load, artifacts: object, data: Mnist) -> None:
    with running(data, lambda peer, raw, _: peer.reply(raw, wrong=True)) as peer:
        ran = load.plan(peer.address, *SHORT, "--models", "cnn2", "--batch-sizes", "1", "--concurrency", "1")
    assert not ran.cell["valid"]
    assert any("through the server 0.00% are right" in reason for reason in ran.cell["reasons"])


@pytest.mark.slow
def test_an_interrupted_plan_keeps_the_cells_it_has(load: Load, data: Mnist) -> None:
    with running(data, after(0.002)) as peer:
        options = ["--host", peer.address, "--artifacts", str(load.artifacts), "--out", str(load.out), "--models", "cnn2"]
        process = load.popen([sys.executable, "-m", "loadtest", *options, "--warmup", "0.2", "--window", "1"])
        assert process.stdout is not None
        assert "requests/s" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        ran = load.finish(process)
    assert ran.status == 1
    assert ran.run["complete"] is False
    assert 1 <= len(ran.run["cells"]) < 8
    assert any(note.startswith("interrupted: ") for note in ran.run["notes"])
    assert "Traceback" not in ran.output


@pytest.mark.slow
def test_a_plan_that_is_told_to_end_before_it_measures_leaves_nothing(load: Load, data: Mnist) -> None:
    with running(data, ready_after_s=1000) as peer:
        options = ["--host", peer.address, "--artifacts", str(load.artifacts), "--out", str(load.out), "--models", "cnn2"]
        process = load.popen([sys.executable, "-m", "loadtest", *options])
        time.sleep(5)
        os.kill(process.pid, signal.SIGTERM)
        ran = load.finish(process)
    assert ran.status == 130
    assert "Traceback" not in ran.output
    assert not list(load.out.iterdir())


@pytest.mark.slow
def test_a_server_that_dies_in_between_shows_as_failures_and_loses_nothing(load: Load, data: Mnist) -> None:
    with running(data, after(0.002)) as peer:
        options = ["--host", peer.address, "--artifacts", str(load.artifacts), "--out", str(load.out), "--models", "cnn2"]
        process = load.popen([sys.executable, "-m", "loadtest", *options, *SHORT, "--batch-sizes", "1,8"])
        assert process.stdout is not None
        assert "requests/s" in process.stdout.readline()
    ran = load.finish(process)
    assert ran.status == 1
    assert ran.run["cells"][0]["failed"] == 0
    assert not ran.run["cells"][-1]["valid"]
    assert "Traceback" not in ran.output


@pytest.mark.slow
def test_it_serves_by_itself_and_leaves_no_server_behind(load: Load, artifacts: object) -> None:
    options = [
        "--serve",
        "--artifacts",
        str(load.artifacts),
        "--out",
        str(load.out),
        "--models",
        "cnn2",
        "--batch-sizes",
        "8",
        "--concurrency",
        "2",
    ]
    ran = load.finish(load.popen([sys.executable, "-m", "loadtest", *options, *SHORT]))
    assert ran.status == 0, ran.output
    assert ran.run["server"]["engine"] == "embedded"
    assert ran.run["server"]["threads"]["session"] >= 1
    assert any("share the CPUs" in note for note in ran.run["notes"])
    assert (
        run_module("loadtest", "--host", ran.run["server"]["address"], "--ready-timeout", "1", "--artifacts", load.artifacts).returncode
        == 2
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--batch-sizes", "1,x"], "not a list of whole numbers"),
        (["--batch-sizes", "0"], "start at 1"),
        (["--models", ""], "at least one model"),
        (["--window", "0"], "--window"),
        (["--host", "nowhere"], "HOST:PORT"),
        (["--label", "a b"], "--label"),
        (["--artifacts", "/nowhere"], "no MNIST at /nowhere"),
        (["--host", "127.0.0.1:9", "--ready-timeout", "0.5"], "nothing answers gRPC at 127.0.0.1:9"),
        (["--unknown-option"], "unrecognized arguments"),
    ],
)
def test_a_users_mistake_is_told_in_one_line(load: Load, options: list[str], says: str) -> None:
    # argparse takes the last of an option that is given twice.
    flags = ["--artifacts", str(load.artifacts), "--out", str(load.out), *options]
    done = run_module("loadtest", *flags)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert says in last
    assert "Traceback" not in done.stderr
    assert not load.out.exists() or not list(load.out.iterdir())
