"""`python -m export`: makes a verified SavedModel version of each trained model."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from export.errors import ExportError
from export.versions import publish
from train import mnist, record
from train.errors import TrainError
from train.model import model_name


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m export", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--conv-layers", type=int, nargs="+", default=[2, 4], metavar="N", help="depths to export: cnn2, cnn4, …")
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=[1, 8, 32, 128], metavar="N", help="images per warm-up request, one request each"
    )
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), metavar="DIR", help="where all results go")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if min(options.batch_sizes) < 1:
        parser.error("--batch-sizes must be at least 1")
    try:
        for depth in options.conv_layers:
            export(depth, options.artifacts, options.batch_sizes)
    except (ExportError, TrainError) as problem:
        print(f"export: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("export: interrupted; no version was made", file=sys.stderr)
        return 130
    return 0


def export(depth: int, artifacts: Path, batch_sizes: list[int]) -> Path:
    """Exports one model from its training record and weights; returns the new version's folder.

    Raises TrainError if it has not been trained and ExportError if the export doesn't pass its check.
    """
    name = model_name(depth)
    facts = record.read(artifacts / "training", name)
    data = mnist.cached(artifacts / "data")

    # TensorFlow takes seconds to import: not before the inputs are known to be there.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from export import saved_model, verify
    from train.model import build
    from train.recipe import predict_logits

    tf.get_logger().setLevel("ERROR")  # or it advises against the loader that the check is about
    model = build(depth)
    model.load_weights(record.weights_path(artifacts / "training", name))
    images = mnist.scale(data.test_images)
    keras_logits = predict_logits(model, data.test_images)
    found = []

    def write(folder: Path) -> None:
        saved_model.write(model, folder)
        found.append(verify.verify(folder, images, data.test_labels, keras_logits))
        if found[0].accuracy != facts["test_accuracy"]:
            raise ExportError(
                f"{name} labels {found[0].accuracy:.2%} of the test images right, its training record says {facts['test_accuracy']:.2%}"
            )
        saved_model.add_extras(folder, name, images, facts, batch_sizes)

    version = publish(artifacts / "models" / name, write)
    print(
        f"{name}: {version}, checked by the session loader on {len(images):,} test images: {found[0].accuracy:.2%} right, "
        f"logits within {found[0].largest_logit_difference:.1e} of Keras"
    )
    return version


if __name__ == "__main__":
    sys.exit(main())
