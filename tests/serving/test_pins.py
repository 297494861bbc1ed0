"""The pinned release: one setting in three files, and an image that is too old for what was exported is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import pins
from serving.errors import ServingError
from serving.pins import check_image_age, exported_tensorflow_version, newest_versions

ROOT = Path(__file__).parents[2]


def savedmodel(folder: Path, exporter: str, tags: tuple[str, ...] = ("serve",)) -> Path:
    """A version folder whose saved_model.pb says no more than who exported it."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    saved.meta_graphs.add().meta_info_def.tensorflow_version = exporter
    saved.meta_graphs[0].meta_info_def.tags.extend(tags)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def test_pyproject_compose_file_and_pins_name_the_same_release() -> None:
    minor = ".".join(pins.TENSORFLOW_SERVING.split(".")[:2])
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for package in ("tensorflow", "tensorflow-serving-api"):
        assert f"{package}~={minor}.0" in dependencies
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert services["serving-cpu"]["image"] == f"${{TFS_IMAGE_CPU:-{pins.IMAGE_CPU}}}"
    assert services["serving-gpu"]["image"] == f"${{TFS_IMAGE_GPU:-{pins.IMAGE_GPU}}}"


def test_lock_file_holds_the_pinned_minor() -> None:
    minor = re.escape(".".join(pins.TENSORFLOW_SERVING.split(".")[:2]))
    lock = (ROOT / "requirements.lock").read_text()
    for package in ("tensorflow", "tensorflow-serving-api"):
        assert re.search(rf"^{package}=={minor}\.\d+\b", lock, re.MULTILINE), package


@pytest.mark.parametrize(
    "image",
    [
        "2.20.0",
        "tensorflow/serving:2.20.0",
        "tensorflow/serving:2.20.1-gpu",
        "tensorflow/serving:2.20.0@sha256:" + "0" * 64,
        "localhost:5000/mirror/serving:2.21.0-rc1",
        "3.0.0",
    ],
)
def test_image_that_is_as_new_as_the_exporter_passes(image: str) -> None:
    check_image_age("2.20.1", image)


@pytest.mark.parametrize("image", ["2.19.1", "tensorflow/serving:2.19.1-gpu", "localhost:5000/serving:2.9.0", "1.15.0"])
def test_older_image_is_refused_in_one_line_that_says_what_to_do(image: str) -> None:
    with pytest.raises(ServingError, match=r"2\.20 or newer, or export with TensorFlow") as refused:
        check_image_age("2.20.0", image)
    assert image in str(refused.value)
    assert "\n" not in str(refused.value)


def test_model_of_a_newer_exporter_is_refused_with_the_pinned_image() -> None:
    with pytest.raises(ServingError, match=r"use an image of TensorFlow Serving 2\.21 or newer"):
        check_image_age("2.21.0", pins.IMAGE_CPU)


@pytest.mark.parametrize(
    "image",
    ["tensorflow/serving", "tensorflow/serving:latest", "tensorflow/serving:latest-gpu", "localhost:5000/serving", "x@sha256:2.20.0", ""],
)
def test_image_without_a_release_is_refused_unless_allowed(image: str) -> None:
    with pytest.raises(ServingError, match="name an exact one"):
        check_image_age("2.20.0", image)
    check_image_age("2.20.0", image, allow_unpinned=True)


def test_allowing_unpinned_images_does_not_allow_older_ones() -> None:
    with pytest.raises(ServingError, match="older"):
        check_image_age("2.20.0", "tensorflow/serving:2.19.0", allow_unpinned=True)


@settings(deadline=None)
@given(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
)
def test_only_major_and_minor_decide_and_are_compared_as_numbers(exporter: tuple[int, int, int], server: tuple[int, int, int]) -> None:
    version, image = "{}.{}.{}".format(*exporter), "tensorflow/serving:{}.{}.{}-gpu".format(*server)
    if server[:2] < exporter[:2]:
        with pytest.raises(ServingError):
            check_image_age(version, image)
    else:
        check_image_age(version, image)


def test_exporter_is_read_from_the_savedmodel(tmp_path: Path) -> None:
    assert exported_tensorflow_version(savedmodel(tmp_path / "1", "2.20.0")) == "2.20.0"


def test_savedmodel_that_is_missing_damaged_or_silent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="can't be read"):
        exported_tensorflow_version(tmp_path)
    for name, exporter, tags in (("unnamed", "", ("serve",)), ("for-training", "2.20.0", ("train",))):
        with pytest.raises(ServingError, match="doesn't say which TensorFlow"):
            exported_tensorflow_version(savedmodel(tmp_path / name, exporter, tags))
    damaged = savedmodel(tmp_path / "damaged", "2.20.0")
    (damaged / "saved_model.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ServingError, match="not a SavedModel"):
        exported_tensorflow_version(damaged)


def test_newest_version_counts_by_number_and_other_folders_do_not(tmp_path: Path) -> None:
    for version in ("9", "10", "tmp-11"):
        (tmp_path / "cnn2" / version).mkdir(parents=True)
    assert newest_versions(tmp_path) == [tmp_path / "cnn2" / "10"]


def test_command_line_passes_what_fits_and_refuses_what_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savedmodel(tmp_path / "cnn2" / "1", "2.21.0")
    savedmodel(tmp_path / "cnn2" / "2", "2.20.0")
    savedmodel(tmp_path / "cnn4" / "1", "2.20.0")
    assert pins.main(["check", f"--models={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert pins.main(["check", f"--models={tmp_path}", "--image=tensorflow/serving:2.19.0"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("serving: cnn2 version 2: ")
    assert said.count("\n") == 1
    assert pins.main(["check", f"--models={tmp_path}", "--image=tensorflow/serving:latest"]) == 2
    assert pins.main(["check", f"--models={tmp_path}", "--image=tensorflow/serving:latest", "--allow-unpinned"]) == 0


def test_command_line_names_the_missing_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pins.main(["check", f"--models={tmp_path / 'none'}"]) == 2
    assert "make export" in capsys.readouterr().err
