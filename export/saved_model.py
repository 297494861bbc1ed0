"""Writing a SavedModel that TensorFlow Serving can serve: signature, warm-up requests, training record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from export.records import EXTRA, write_record

SIGNATURE = "serving_default"
INPUT = "images"
BATCH_SIZES = (1, 8, 32, 128)
"""The batch sizes that the benchmark sends unless told otherwise; each gets a warm-up request."""

_WARMUP_FILE = "tf_serving_warmup_requests"


def write(model: Any, folder: Path) -> None:
    """Writes a Keras model (float32 [n, 784] to logits [n, 10]) as a SavedModel into the new folder `folder`.

    Its one predict signature takes `images` and gives `logits` float32 [n, 10] and `classes` int64 [n], dropout off. An
    `ExportArchive` is used because what `tf.saved_model.save` makes of a Keras 3 model loads in Python and fails in
    the session loader of TensorFlow Serving ("Could not find variable").
    """
    archive = keras.export.ExportArchive()
    archive.track(model)

    def score(images: Any) -> dict[str, Any]:
        logits = model(images, training=False)
        return {"logits": logits, "classes": tf.argmax(logits, axis=1, output_type=tf.int64)}

    archive.add_endpoint(SIGNATURE, score, input_signature=[tf.TensorSpec([None, *model.input_shape[1:]], tf.float32, name=INPUT)])
    archive.write_out(str(folder), verbose=False)


def add_extras(folder: Path, name: str, images: npt.NDArray[np.float32], record: dict[str, Any], batch_sizes: Sequence[int]) -> None:
    """Adds what travels with a version: warm-up requests of real images float32 [n, 784], and the training record.

    The warm-up file holds one request per batch size, as TensorFlow Serving replays it before a version becomes
    AVAILABLE: graph optimisation and kernel choice are per shape, so each size is met before it is measured.
    """
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    extra = folder / EXTRA
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / _WARMUP_FILE)) as writer:
        for size in batch_sizes:
            request = predict_pb2.PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = name, SIGNATURE
            request.inputs[INPUT].CopyFrom(tf.make_tensor_proto(np.resize(images, (size, images.shape[1]))))
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())
    write_record(folder, record)
