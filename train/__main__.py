"""`python -m train`: trains the models and writes their weights and records."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from train import mnist, record
from train.errors import TrainError
from train.model import conv_widths, model_name

_LARGEST_SEED = 2**32 - 1  # NumPy takes no larger one


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--conv-layers", type=int, nargs="+", default=[2, 4], metavar="N", help="depths to train: cnn2, cnn4, …")
    parser.add_argument("--steps", type=int, default=20_000, help="training steps of 50 images; the published recipe has 20,000")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, order of the images and dropout")
    parser.add_argument("--data", type=Path, default=None, metavar="DIR", help="folder with MNIST: four IDX files or mnist.npz")
    parser.add_argument("--data-only", action="store_true", help="fetch and check MNIST, train nothing")
    parser.add_argument("--again", action="store_true", help="train even where a record of the same recipe exists")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), metavar="DIR", help="where all results go")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    if not 0 <= options.seed <= _LARGEST_SEED:
        parser.error(f"--seed must be from 0 to {_LARGEST_SEED}")
    try:
        return run(options)
    except TrainError as problem:
        print(f"train: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("train: interrupted; what was being trained is not kept", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Loads the data and trains what has no record of this recipe yet."""
    for depth in options.conv_layers:
        conv_widths(depth)
    started = time.perf_counter()
    data = mnist.load(options.artifacts / "data", options.data)
    if options.data_only:
        return 0
    read_seconds = time.perf_counter() - started

    # TensorFlow takes seconds to import: not before the arguments and the data are known to be right.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from train import progress
    from train.recipe import Recipe, train

    recipe = Recipe(steps=options.steps, seed=options.seed)
    folder = options.artifacts / "training"
    for depth in options.conv_layers:
        name = model_name(depth)
        if not options.again and _trained(folder, name, asdict(recipe)):
            print(f"{name}: already trained by this recipe, see {record.record_path(folder, name)} (--again trains anew)")
            continue
        record.check_writable(folder)
        with progress.steps(name, recipe.steps) as show:
            model, facts = train(depth, data, recipe, read_seconds, show)
        path = record.write(folder, model, facts)
        print(
            f"{name}: {facts['test_accuracy']:.2%} of the test images right after {recipe.steps:,} steps, "
            f"{facts['train_seconds']:.1f} s of training on {facts['device'].upper()}: {path}"
        )
    return 0


def _trained(folder: Path, name: str, recipe: dict[str, object]) -> bool:
    try:
        return bool(record.read(folder, name).get("recipe") == recipe)
    except TrainError:
        return False


if __name__ == "__main__":
    sys.exit(main())
