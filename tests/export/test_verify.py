from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from export import saved_model
from export.errors import ExportError
from export.verify import LOGITS_TOLERANCE, Verified, verify
from train import mnist
from train.recipe import predict_logits

IMAGES = 300


def small_model() -> keras.Model:
    keras.utils.set_random_seed(5)
    images = keras.Input((784,), name="images")
    x = keras.layers.Dense(8, activation="tanh")(images)
    return keras.Model(images, keras.layers.Dense(10)(keras.layers.Dropout(0.5)(x)))


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return small_model()


@pytest.fixture(scope="module")
def images(data: mnist.Mnist) -> np.ndarray:
    return mnist.scale(data.test_images[:IMAGES])


@pytest.fixture
def check(model: keras.Model, images: np.ndarray, data: mnist.Mnist) -> Callable[[Path], Verified]:
    """The check of a SavedModel against the small model."""
    logits = predict_logits(model, data.test_images[:IMAGES])
    return lambda folder: verify(folder, images, data.test_labels[:IMAGES], logits)


Answer = Callable[[Any], dict[str, Any]]


def save(model: keras.Model, folder: Path, answer: Answer, batch: int | None = None, name: str = "images", dtype: Any = tf.float32) -> Path:
    """A SavedModel of `model` as the export makes them, with the function `answer` in place of the right one."""
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", answer, input_signature=[tf.TensorSpec([batch, 784], dtype, name=name)])
    archive.write_out(str(folder), verbose=False)
    return folder


def answered(logits: Any) -> dict[str, Any]:
    return {"logits": logits, "classes": tf.argmax(logits, axis=1, output_type=tf.int64)}


def test_the_export_of_a_model_passes(model: keras.Model, check: Callable[[Path], Verified], data: mnist.Mnist, tmp_path: Path) -> None:
    saved_model.write(model, tmp_path / "1")
    found = check(tmp_path / "1")
    right = predict_logits(model, data.test_images[:IMAGES]).argmax(axis=1) == data.test_labels[:IMAGES]
    assert found.accuracy == right.mean()
    assert found.largest_logit_difference < 1e-5


def test_a_keras_model_saved_by_tensorflow_is_rejected_though_python_loads_it(
    model: keras.Model, check: Callable[[Path], Verified], images: np.ndarray, tmp_path: Path
) -> None:
    score = tf.function(lambda images: answered(model(images, training=False)), input_signature=[tf.TensorSpec([None, 784], name="images")])
    tf.saved_model.save(model, str(tmp_path / "1"), signatures={"serving_default": score})
    python = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"](images=tf.constant(images))
    assert np.allclose(python["logits"], model(images), atol=1e-5)
    with pytest.raises(ExportError, match=r"can't be run by a session: Could not find variable .*"):
        check(tmp_path / "1")


def test_a_keras_model_saved_by_tensorflow_without_a_signature_is_rejected(
    model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    tf.saved_model.save(model, str(tmp_path / "1"))
    with pytest.raises(ExportError):
        check(tmp_path / "1")


def test_a_module_that_holds_an_untracked_keras_model_is_rejected(
    model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    class Holder(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        @tf.function(input_signature=[tf.TensorSpec([None, 784], tf.float32, name="images")])
        def score(self, images: Any) -> dict[str, Any]:
            return answered(self.model(images, training=False))

    holder = Holder()
    tf.saved_model.save(holder, str(tmp_path / "1"), signatures={"serving_default": holder.score})
    with pytest.raises(ExportError, match=r"can't be run by a session: Could not find variable .*"):
        check(tmp_path / "1")


def test_a_model_without_signatures_is_rejected(check: Callable[[Path], Verified], tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(ExportError, match="no signature serving_default"):
        check(tmp_path / "1")


@pytest.mark.parametrize(
    ("changes", "answer", "said"),
    [
        ({"batch": 1}, answered, r"images is float32 \[1, 784\], expected float32 \[-1, 784\]"),
        ({"name": "pixels"}, answered, r"has the inputs \['pixels'\], expected \['images'\]"),
        ({"dtype": tf.float16}, answered, "images is float16"),
        ({}, lambda logits: {"logits": logits}, r"has the outputs \['logits'\], expected \['classes', 'logits'\]"),
        ({}, lambda logits: {**answered(logits), "more": logits}, r"has the outputs \['classes', 'logits', 'more'\]"),
        ({}, lambda logits: {"logits": logits, "classes": tf.argmax(logits, axis=1, output_type=tf.int32)}, r"classes is int32 \[-1\]"),
        ({}, lambda logits: {"logits": logits, "classes": tf.argmax(logits, axis=1)[:, None]}, r"classes is int64 \[-1, 1\]"),
        ({}, lambda logits: answered(logits[:1]), "answers 7 images with 1 rows of logits and 1 labels"),
        ({}, lambda logits: answered(logits[:, :9]), r"logits is float32 \[-1, 9\]"),
    ],
    ids=["static batch", "other input name", "other input type", "output missing", "output too many", "int32 classes", "classes of rank 2",
         "one answer for all", "nine logits"],
)  # fmt: skip
def test_another_signature_is_rejected(
    changes: dict[str, Any], answer: Answer, said: str, model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    save(model, tmp_path / "1", lambda images: answer(model(tf.cast(images, tf.float32), training=False)), **changes)
    with pytest.raises(ExportError, match=said):
        check(tmp_path / "1")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda model, images: model(images, training=True), "10 repeats of one request differ: dropout or another random"),
        (lambda model, images: model(images, training=False) + tf.random.uniform([10], 0, 1e-5), "10 repeats of one request differ"),
        (lambda model, images: tf.nn.softmax(model(images, training=False)), "a logit differs from Keras's by"),
        (lambda model, images: model(images, training=False) + 2 * LOGITS_TOLERANCE, "a logit differs from Keras's by 0.0002"),
        (lambda model, images: model(images, training=False) * float("nan"), "otherwise than Keras|differs from Keras's by nan"),
        (lambda model, images: model(images[::-1], training=False), "images otherwise than Keras does"),
        (lambda model, images: model(images / 255, training=False), "otherwise than Keras|differs from Keras's"),
        (lambda model, images: model(images - tf.reduce_mean(images, axis=0), training=False), "otherwise than Keras|differs"),
    ],
    ids=["active dropout", "noise", "softmax", "shifted", "not a number", "other order", "other scale", "batch mates matter"],
)  # fmt: skip
def test_other_answers_than_those_of_keras_are_rejected(
    wrong: Callable[[keras.Model, Any], Any], said: str, model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    save(model, tmp_path / "1", lambda images: answered(wrong(model, images)))
    with pytest.raises(ExportError, match=said):
        check(tmp_path / "1")


def test_answers_that_depend_on_the_size_of_the_batch_are_rejected(
    model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    def fails_alone(images: Any) -> dict[str, Any]:
        return answered(model(images, training=False) * tf.where(tf.shape(images)[0] == 1, 0.0, 1.0))

    save(model, tmp_path / "1", fails_alone)
    with pytest.raises(ExportError, match="a batch of 1 is answered otherwise than the same images in a large batch"):
        check(tmp_path / "1")


def test_labels_that_are_not_those_of_the_logits_are_rejected(
    model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path
) -> None:
    save(model, tmp_path / "1", lambda images: {**answered(model(images)), "classes": tf.argmin(model(images), axis=1)})
    with pytest.raises(ExportError, match=f"labels {IMAGES} of {IMAGES} images otherwise than Keras does"):
        check(tmp_path / "1")


def test_weights_that_were_drawn_anew_are_rejected(model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path) -> None:
    other = keras.models.clone_model(model)
    saved_model.write(other, tmp_path / "1")
    with pytest.raises(ExportError, match="images otherwise than Keras does"):
        check(tmp_path / "1")


@pytest.mark.parametrize("missing", ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"])
def test_half_a_copy_is_rejected(missing: str, model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path) -> None:
    saved_model.write(model, tmp_path / "1")
    (tmp_path / "1" / missing).unlink()
    with pytest.raises(ExportError, match="the session loader can't load the export") as problem:
        check(tmp_path / "1")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"])
def test_a_file_that_was_cut_is_rejected(name: str, model: keras.Model, check: Callable[[Path], Verified], tmp_path: Path) -> None:
    saved_model.write(model, tmp_path / "1")
    path = tmp_path / "1" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ExportError) as problem:
        check(tmp_path / "1")
    assert "\n" not in str(problem.value)


def test_a_folder_that_is_not_there_is_rejected(check: Callable[[Path], Verified], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="the session loader can't load the export"):
        check(tmp_path / "1")
