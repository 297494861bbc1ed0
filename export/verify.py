"""The check of an export, with the loader that TensorFlow Serving uses.

`tf.saved_model.load` accepts models that the session loader can't run, so it is no check: this one loads the graph with
`tf.compat.v1.saved_model.loader`, tag `serve`, into a session, and runs the signature's tensor names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from export.errors import ExportError
from export.saved_model import INPUT, SIGNATURE

Floats = npt.NDArray[np.float32]

LOGITS_TOLERANCE = 1e-4
_BATCH = 1000
_REPEATS = 10
_EXPECTED = {
    "inputs": {INPUT: (tf.float32, [-1, 784])},
    "outputs": {"logits": (tf.float32, [-1, 10]), "classes": (tf.int64, [-1])},
}


@dataclass(frozen=True)
class Verified:
    """What the check found: accuracy over the images, and the largest distance of a logit from Keras's."""

    accuracy: float
    largest_logit_difference: float


def verify(folder: Path, images: Floats, labels: npt.NDArray[np.integer], keras_logits: Floats) -> Verified:
    """Checks the SavedModel in `folder` on images float32 [n, 784] with labels [n] against Keras's logits [n, 10].

    Labels must agree with Keras on every image, logits within 1e-4; ten repeats must be identical (dropout is off), and
    batches of 1 and 7 must answer as the large ones do. Raises ExportError saying what is wrong.
    """
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        try:
            meta = tf.compat.v1.saved_model.loader.load(session, [tf.compat.v1.saved_model.tag_constants.SERVING], str(folder))
        except (OSError, RuntimeError, ValueError, tf.errors.OpError) as problem:
            raise ExportError(f"the session loader can't load the export: {_first_line(problem)}") from problem
        signature = checked_signature(dict(meta.signature_def))
        feed = signature.inputs[INPUT].name
        fetches = [signature.outputs["logits"].name, signature.outputs["classes"].name]

        def score(batch: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
            try:
                logits, classes = session.run(fetches, {feed: batch})
            except (RuntimeError, ValueError, tf.errors.OpError) as problem:
                raise ExportError(f"the export loads and can't be run by a session: {_first_line(problem)}") from problem
            if len(logits) != len(batch) or len(classes) != len(batch):
                raise ExportError(f"the export answers {len(batch)} images with {len(logits)} rows of logits and {len(classes)} labels")
            return logits, classes

        # Before all comparisons: random answers fail those as well, and this names the cause.
        repeats = [score(images[:7])[0] for _ in range(_REPEATS)]
        if any(not np.array_equal(repeats[0], repeat, equal_nan=True) for repeat in repeats):
            raise ExportError(f"{_REPEATS} repeats of one request differ: dropout or another random operation is active")
        parts = [score(images[i : i + _BATCH]) for i in range(0, len(images), _BATCH)]
        logits, classes = (np.concatenate(column) for column in zip(*parts, strict=True))
        _same_answers(logits, classes, keras_logits)
        for size in (1, 7):
            small, small_classes = score(images[:size])
            if not np.allclose(small, logits[:size], rtol=0, atol=LOGITS_TOLERANCE):
                raise ExportError(f"a batch of {size} is answered otherwise than the same images in a large batch")
            if not np.array_equal(small_classes, classes[:size]):
                raise ExportError(f"a batch of {size} gets other labels than the same images in a large batch")
    return Verified(int((classes == labels).sum()) / len(labels), float(np.abs(logits - keras_logits).max()))


def checked_signature(signatures: dict[str, Any]) -> Any:
    """The `serving_default` SignatureDef, if names, dtypes and shapes are the benchmark's and the batch dimension is free.

    Raises ExportError otherwise.
    """
    if SIGNATURE not in signatures:
        raise ExportError(f"the export has no signature {SIGNATURE}, only {sorted(signatures) or 'none at all'}")
    signature = signatures[SIGNATURE]
    for side, expected in _EXPECTED.items():
        tensors = getattr(signature, side)
        if set(tensors) != set(expected):
            raise ExportError(f"{SIGNATURE} has the {side} {sorted(tensors)}, expected {sorted(expected)}")
        for name, (dtype, shape) in expected.items():
            found = [dim.size for dim in tensors[name].tensor_shape.dim]
            if tensors[name].dtype != dtype.as_datatype_enum or found != shape:
                raise ExportError(f"{name} is {tf.as_dtype(tensors[name].dtype).name} {found}, expected {dtype.name} {shape}")
    return signature


def _same_answers(logits: Floats, classes: npt.NDArray[np.int64], keras_logits: Floats) -> None:
    wrong = int((classes != keras_logits.argmax(axis=1)).sum())
    if wrong:
        raise ExportError(f"the export labels {wrong} of {len(classes)} images otherwise than Keras does")
    difference = np.abs(logits - keras_logits)
    if not np.all(np.isfinite(logits)) or difference.max() > LOGITS_TOLERANCE:
        raise ExportError(f"a logit differs from Keras's by {difference.max():.2g}, allowed is {LOGITS_TOLERANCE:g}")


def _first_line(problem: BaseException) -> str:
    lines = str(problem).removeprefix("Graph execution error:").strip().splitlines()  # a heading of TensorFlow's, the cause is below it
    return (lines or [type(problem).__name__])[0][:300]
