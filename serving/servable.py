"""One loaded version of a model: a graph in a session, run by name, warmed before anyone can ask for it.

Loads as TensorFlow Serving does, with the v1 loader and tag `serve`; `Session.make_callable` is the quickest way that
Python has to run a graph (beside the signature function and `model.predict`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from serving.errors import ServingError

log = logging.getLogger(__name__)

_WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
_INIT_OP = "__saved_model_init_op"


@dataclass(frozen=True)
class Input:
    """An input of a signature: its alias, the graph's tensor name, dtype and shape (None: any size)."""

    alias: str
    tensor: str
    dtype: tf.DType
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Signature:
    """A signature that can be run: inputs by alias, and the aliases of the outputs in the order that `run` gives them."""

    name: str
    inputs: dict[str, Input]
    outputs: tuple[str, ...]
    run: Any


class Servable:
    """A version of a model, loaded and ready. `signatures` are those that can be run, `meta` all that the graph declares."""

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        """Loads `folder`, `threads` wide inside an operation and across operations. Raises ServingError if it can't be served."""
        self.name, self.version = name, int(folder.name)
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        graph = tf.Graph()
        with graph.as_default():
            self.session = tf.compat.v1.Session(graph=graph, config=config)
            try:
                loaded = tf.compat.v1.saved_model.loader.load(self.session, [tf.compat.v1.saved_model.tag_constants.SERVING], str(folder))
            except (OSError, RuntimeError, ValueError, tf.errors.OpError) as problem:
                raise ServingError(f"{name} version {self.version} can't be loaded: {_first_line(problem)}") from problem
            self.meta = dict(loaded.signature_def)
            self.signatures = {
                key: self._signature(key, signature) for key, signature in self.meta.items() if key != _INIT_OP and signature.outputs
            }
        graph.finalize()
        self.devices = [device.name for device in self.session.list_devices()]
        if not self.signatures:
            raise ServingError(f"{name} version {self.version} has no signature that can be run: export it with 'python -m export'")

    def _signature(self, key: str, definition: Any) -> Signature:
        inputs = {
            alias: Input(alias, info.name, tf.as_dtype(info.dtype), None if info.tensor_shape.unknown_rank else _shape(info))
            for alias, info in sorted(definition.inputs.items())
        }
        outputs = tuple(sorted(definition.outputs))
        fetches = [definition.outputs[alias].name for alias in outputs]
        return Signature(key, inputs, outputs, self.session.make_callable(fetches, [each.tensor for each in inputs.values()]))

    def warm_up(self, folder: Path, predict: Any) -> int:
        """Runs the recorded warm-up requests of the version through `predict(request)`; returns how many.

        Raises ServingError if the file can't be read or a request fails: a version that can't answer is not AVAILABLE.
        """
        path = folder / _WARMUP
        if not path.exists():
            return 0
        from tensorflow_serving.apis import prediction_log_pb2

        count = 0
        try:
            for raw in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                record = prediction_log_pb2.PredictionLog.FromString(raw)
                if record.WhichOneof("log_type") == "predict_log":
                    predict(record.predict_log.request)
                    count += 1
        except Exception as problem:  # whatever a graph or a damaged file raises, this version must not be served
            raise ServingError(f"{self.name} version {self.version} fails its warm-up: {_first_line(problem)}") from problem
        return count


def _shape(info: Any) -> tuple[int | None, ...]:
    return tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim)


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


def fits(shape: tuple[int, ...], declared: tuple[int | None, ...] | None) -> bool:
    """Whether an array of `shape` may be fed where a signature declares `declared`."""
    if declared is None:
        return True
    return len(shape) == len(declared) and all(want is None or want == have for have, want in zip(shape, declared, strict=True))
