"""Fixtures that all rooms share: real data, really trained and exported models, a real server process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.endpoint import Endpoint
from serving.launch import embedded_server
from train import mnist

STEPS = 100


def run_module(*arguments: str | Path, timeout: float = 280, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs `python -m …` as a user would and returns what it said."""
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `data/mnist.npz` is MNIST, fetched once for all tests."""
    folder = tmp_path_factory.mktemp("artifacts")
    mnist.load(folder / "data")
    return folder


@pytest.fixture(scope="session")
def data(data_folder: Path) -> mnist.Mnist:
    return mnist.cached(data_folder / "data")


@pytest.fixture(scope="session")
def trained(data_folder: Path) -> Path:
    """Artifacts with cnn2 and cnn4 trained for a hundred steps by the command line."""
    done = run_module("train", "--steps", str(STEPS), "--artifacts", data_folder)
    assert done.returncode == 0, done.stderr
    return data_folder


@pytest.fixture(scope="session")
def artifacts(trained: Path) -> Path:
    """Artifacts with both models exported as version 1 by the command line."""
    done = run_module("export", "--artifacts", trained)
    assert done.returncode == 0, done.stderr
    return trained


@pytest.fixture(scope="session")
def server(artifacts: Path) -> Iterator[Endpoint]:
    """A running embedded server with both models. Tests leave it as they find it."""
    with embedded_server(artifacts / "models") as endpoint:
        yield endpoint
