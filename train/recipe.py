"""The recipe: how a model is trained, from top to bottom.

Softmax cross-entropy on logits, Adam, batches of 50 from shuffled epochs, dropout, 20,000 steps; the accuracy on the
coming batch every 100 steps, the test accuracy at the end. The steps run as one compiled loop over data that stays in
memory, 100 steps a call, so that Python's part in the time is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.environment import host, software
from train.mnist import Mnist
from train.model import DROPOUT_RATE, build, flops_per_image, model_name

STEPS_PER_CALL = 100
_EVALUATE_BATCH = 1000


@dataclass(frozen=True)
class Recipe:
    """What decides the trained weights, besides the data and the depth."""

    steps: int = 20_000
    batch_size: int = 50
    optimizer: str = "adam"
    learning_rate: float = 1e-4
    dropout_rate: float = DROPOUT_RATE
    precision: str = "float32"
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """One point of the training curve: the step about to be made, loss and accuracy on its batch, seconds since the first."""

    step: int
    loss: float
    accuracy: float
    seconds: float


def batches(images: int, recipe: Recipe) -> npt.NDArray[np.int32]:
    """The image numbers of each step, shape [steps, batch_size]: shuffled epochs, one after the other, from the seed."""
    generator = np.random.default_rng(recipe.seed)
    needed = recipe.steps * recipe.batch_size
    epochs = [generator.permutation(images) for _ in range(-(-needed // images))]
    return np.concatenate(epochs)[:needed].reshape(recipe.steps, recipe.batch_size).astype(np.int32)


def train(
    conv_layers: int, data: Mnist, recipe: Recipe, read_seconds: float, report: Callable[[Progress], None]
) -> tuple[Any, dict[str, Any]]:
    """Trains one model and returns it with its training record (docs/run-format.md), all but `weights_sha256`.

    `read_seconds` is what reading the data took, `report` is called with every point of the curve.
    """
    started_at, start = datetime.now(UTC), time.perf_counter()
    keras.utils.set_random_seed(recipe.seed)
    model = build(conv_layers)
    optimizer = keras.optimizers.Adam(recipe.learning_rate)
    optimizer.build(model.trainable_variables)
    images, labels = tf.constant(data.train_images), tf.constant(data.train_labels.astype(np.int32))

    def batch(index: Any) -> tuple[Any, Any]:
        return tf.cast(tf.gather(images, index), tf.float32) / 255, tf.gather(labels, index)

    def loss_of(logits: Any, wanted: Any) -> Any:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits))

    @tf.function(input_signature=[tf.TensorSpec([None, recipe.batch_size], tf.int32)])
    def run_steps(indices: Any) -> None:
        for index in indices:
            pixels, wanted = batch(index)
            with tf.GradientTape() as tape:
                loss = loss_of(model(pixels, training=True), wanted)
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    @tf.function(input_signature=[tf.TensorSpec([recipe.batch_size], tf.int32)])
    def measure(index: Any) -> tuple[Any, Any]:
        pixels, wanted = batch(index)
        logits = model(pixels, training=False)
        return loss_of(logits, wanted), _share_right(logits, wanted)

    plan = batches(len(data.train_images), recipe)
    run_steps.get_concrete_function()
    measure.get_concrete_function()
    compiled = time.perf_counter()

    curve = []
    for first in range(0, recipe.steps, STEPS_PER_CALL):
        loss, accuracy = (float(value) for value in measure(plan[first]))
        curve.append(Progress(first, loss, accuracy, time.perf_counter() - compiled))
        report(curve[-1])
        run_steps(plan[first : first + STEPS_PER_CALL])
    trained = time.perf_counter()

    test_loss, test_accuracy = evaluate(model, data)
    evaluated = time.perf_counter()
    train_seconds = trained - compiled
    record = {
        "schema": "timetoscore.training/1",
        "model": model_name(conv_layers),
        "conv_layers": conv_layers,
        "parameters": int(model.count_params()),
        "flops_per_image": flops_per_image(conv_layers),
        "dataset": data.describe(),
        "recipe": asdict(recipe),
        "device": "gpu" if tf.config.list_physical_devices("GPU") else "cpu",
        "host": host(),
        "software": software(),
        "started_at": started_at.isoformat(timespec="seconds"),
        "compile_seconds": compiled - start,
        "train_seconds": train_seconds,
        "evaluate_seconds": evaluated - trained,
        "total_seconds": read_seconds + evaluated - start,
        "steps_per_s": recipe.steps / train_seconds,
        "images_per_s": recipe.steps * recipe.batch_size / train_seconds,
        "curve": [asdict(point) for point in curve],
        "test_accuracy": test_accuracy,
        "test_loss": test_loss,
    }
    return model, record


def evaluate(model: Any, data: Mnist) -> tuple[float, float]:
    """Mean loss and accuracy of a Keras model over the test images, dropout off."""
    logits = predict_logits(model, data.test_images)
    wanted = data.test_labels.astype(np.int32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits).numpy()
    return float(losses.mean(dtype=np.float64)), int((logits.argmax(axis=1) == wanted).sum()) / len(wanted)


def predict_logits(model: Any, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Logits float32 [n, 10] of images uint8 [n, 784], dropout off, scaled as in training."""

    @tf.function(input_signature=[tf.TensorSpec([None, images.shape[1]], tf.uint8)])
    def score(pixels: Any) -> Any:
        return model(tf.cast(pixels, tf.float32) / 255, training=False)

    return np.concatenate([score(images[i : i + _EVALUATE_BATCH]).numpy() for i in range(0, len(images), _EVALUATE_BATCH)])


def _share_right(logits: Any, wanted: Any) -> Any:
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), wanted), tf.float32))
