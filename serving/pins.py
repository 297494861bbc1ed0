"""The TensorFlow Serving release that the project serves with, and the check that it can read what was exported.

The one place that names the release; compose.yaml repeats it as the default of its images, pyproject.toml pins TensorFlow and
tensorflow-serving-api to its minor, and a test holds the three together.

    python -m serving.pins check [--image IMAGE] [--models DIR]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from serving.errors import ServingError

TENSORFLOW_SERVING = "2.20.0"
IMAGE_CPU = f"tensorflow/serving:{TENSORFLOW_SERVING}"
IMAGE_GPU = f"tensorflow/serving:{TENSORFLOW_SERVING}-gpu"

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.\d+(?:$|[-.+a-z])")


def check_image_age(exporter_tensorflow: str, image_or_version: str, allow_unpinned: bool = False) -> None:
    """Refuses an image of TensorFlow Serving that is older than the TensorFlow which exported the model.

    An older server fails on operations that it doesn't know ("Op type not registered"), some only at the first request. Only
    the minor counts: TensorFlow keeps the graph format within one. `image_or_version` is an image (`repository:tag`, with
    or without a digest) or a release by itself. Raises ServingError if it is older, or if no release can be read from
    its tag; `allow_unpinned` lets the latter pass: `latest` has named an older release than its readers
    believed for months (tensorflow/serving#1961, #2136).
    """
    server = _release(_tag(image_or_version))
    if server is None:
        if allow_unpinned:
            return
        raise ServingError(
            f"the image {image_or_version} doesn't say which release of TensorFlow Serving it is: name an exact one, such as {IMAGE_CPU}"
        )
    exporter = _release(exporter_tensorflow)
    if exporter is None:
        raise ServingError(f"'{exporter_tensorflow}' is not a version of TensorFlow: export the models again with 'make export'")
    if server < exporter:
        wanted = "{}.{}".format(*exporter)
        raise ServingError(
            f"the image {image_or_version} is older than TensorFlow {exporter_tensorflow}, which exported the models: "
            f"use an image of TensorFlow Serving {wanted} or newer, or export with TensorFlow {server[0]}.{server[1]}"
        )


def _tag(image: str) -> str:
    """The tag of an image, empty if it has none; a release by itself is its own tag."""
    if _release(image):
        return image
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _release(text: str) -> tuple[int, int] | None:
    """Major and minor of `2.20.0`, `2.20.0-gpu`, `2.21.0rc1`; None for anything else."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2])) if found else None


def exported_tensorflow_version(version_dir: Path) -> str:
    """The TensorFlow version that a SavedModel names as its exporter. Raises ServingError if there is none to be read."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    path = version_dir / "saved_model.pb"
    try:
        saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except OSError as problem:
        raise ServingError(f"{path} can't be read ({problem.strerror}): export the model with 'make export'") from problem
    except DecodeError as problem:
        raise ServingError(f"{path} is not a SavedModel: export the model again with 'make export'") from problem
    for graph in saved.meta_graphs:
        if "serve" in graph.meta_info_def.tags and graph.meta_info_def.tensorflow_version:
            return str(graph.meta_info_def.tensorflow_version)
    raise ServingError(f"{path} doesn't say which TensorFlow exported it: export the model again with 'make export'")


def newest_versions(models: Path) -> list[Path]:
    """The newest version folder of each model under `models`. Raises ServingError if there is no model at all."""
    newest: dict[Path, Path] = {}
    for folder in models.glob("*/*/"):
        if folder.name.isdecimal():
            newest[folder.parent] = max(folder, newest.get(folder.parent, folder), key=lambda each: int(each.name))
    if not newest:
        raise ServingError(f"no model version under {models}: export the models with 'make export', or name their folder with --models")
    return [newest[model] for model in sorted(newest)]


def check_models(models: Path, image: str, allow_unpinned: bool = False) -> list[str]:
    """Checks `image` against the newest version of each model; returns a line on each. Raises ServingError, naming the model."""
    lines = []
    for folder in newest_versions(models):
        exporter = exported_tensorflow_version(folder)
        name = f"{folder.parent.name} version {folder.name}"
        try:
            check_image_age(exporter, image, allow_unpinned)
        except ServingError as problem:
            raise ServingError(f"{name}: {problem}") from problem
        lines.append(f"{name}, exported with TensorFlow {exporter}: fits {image}")
    return lines


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m serving.pins", description="checks an image against the exported models")
    check = parser.add_subparsers(dest="command", required=True).add_parser(
        "check", help="refuse an image that is older than the exporter", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    check.add_argument("--image", default=IMAGE_CPU, help="image of TensorFlow Serving, or a release by itself")
    check.add_argument("--models", type=Path, default=Path("artifacts/models"), metavar="DIR", help="folder of <model>/<version>")
    check.add_argument("--allow-unpinned", action="store_true", help="let an image pass whose tag names no release")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 2 if the image is refused."""
    options = arguments().parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        for line in check_models(options.models, options.image, options.allow_unpinned):
            print(f"serving: {line}")
    except ServingError as problem:
        print(f"serving: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
