from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from export import records
from tests.conftest import run_module
from train import mnist, record
from train.files import sha256, write_json
from train.model import build
from train.recipe import predict_logits

CONTENT = {
    "saved_model.pb",
    "fingerprint.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
    "assets.extra/tf_serving_warmup_requests",
    "assets.extra/training.json",
}
MODELS = [("cnn2", 2), ("cnn4", 4)]


def content(version: Path) -> dict[str, str]:
    return {str(file.relative_to(version)): sha256(file) for file in version.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("name", "depth"), MODELS)
def test_a_version_holds_all_that_a_server_needs(name: str, depth: int, artifacts: Path) -> None:
    assert set(content(artifacts / "models" / name / "1")) == CONTENT
    assert [child.name for child in (artifacts / "models" / name).iterdir()] == ["1"]


@pytest.mark.parametrize(("name", "depth"), MODELS)
def test_the_record_travels_with_the_version(name: str, depth: int, artifacts: Path) -> None:
    version = artifacts / "models" / name / "1"
    assert records.read_record(version) == record.read(artifacts / "training", name)
    assert json.loads((version / "assets.extra" / "training.json").read_text())["model"] == name


@pytest.mark.parametrize("text", [None, "", "[]", "half of a rec", "\udcff"])
def test_a_version_without_a_readable_record_has_none(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "assets.extra").mkdir()
        (tmp_path / "assets.extra" / "training.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert records.read_record(tmp_path) is None


@pytest.mark.parametrize(("name", "depth"), MODELS)
def test_the_signature_has_the_stated_names_types_and_shapes(name: str, depth: int, artifacts: Path) -> None:
    (graph,) = parsed(artifacts / "models" / name / "1" / "saved_model.pb").meta_graphs
    assert list(graph.meta_info_def.tags) == ["serve"]
    signature = graph.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert described(signature.inputs) == {"images": ("float32", [-1, 784])}
    assert described(signature.outputs) == {"logits": ("float32", [-1, 10]), "classes": ("int64", [-1])}


def parsed(file: Path) -> Any:
    return saved_model_pb2.SavedModel.FromString(file.read_bytes())


def described(tensors: Any) -> dict[str, tuple[str, list[int]]]:
    return {name: (tf.as_dtype(tensor.dtype).name, [dim.size for dim in tensor.tensor_shape.dim]) for name, tensor in tensors.items()}


@pytest.mark.parametrize(("name", "depth"), MODELS)
def test_no_operation_of_the_graph_is_bound_to_a_gpu_or_to_xla(name: str, depth: int, artifacts: Path) -> None:
    (graph,) = parsed(artifacts / "models" / name / "1" / "saved_model.pb").meta_graphs
    nodes = [*graph.graph_def.node, *(node for function in graph.graph_def.library.function for node in function.node_def)]
    assert not [node.name for node in nodes if "GPU" in node.device]
    assert not [node.name for node in nodes if node.attr["_XlaMustCompile"].b]
    assert "jit_compile: true" not in text_format.MessageToString(graph.graph_def.library)


@pytest.mark.parametrize(("name", "depth"), MODELS)
def test_the_warm_up_file_has_a_request_of_real_test_images_per_batch_size(
    name: str, depth: int, artifacts: Path, data: mnist.Mnist
) -> None:
    file = artifacts / "models" / name / "1" / "assets.extra" / "tf_serving_warmup_requests"
    logs = [prediction_log_pb2.PredictionLog.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(file))]
    assert [log.WhichOneof("log_type") for log in logs] == ["predict_log"] * 4
    for log, size in zip(logs, (1, 8, 32, 128), strict=True):
        request = log.predict_log.request
        assert (request.model_spec.name, request.model_spec.signature_name) == (name, "serving_default")
        assert list(request.inputs) == ["images"]
        assert request.inputs["images"].dtype == tf.float32.as_datatype_enum
        assert np.array_equal(tf.make_ndarray(request.inputs["images"]), mnist.scale(data.test_images[:size]))


FRESH = """
import sys
import numpy as np
import tensorflow as tf
folder, inputs, outputs = sys.argv[1:]
images = np.load(inputs)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
    signature = meta.signature_def["serving_default"]
    feed = signature.inputs["images"].name
    fetch = {name: tensor.name for name, tensor in signature.outputs.items()}
    repeats = [session.run(fetch, {feed: images[:1]})["logits"] for _ in range(10)]
    np.savez(outputs, repeats=repeats, **session.run(fetch, {feed: images}))
"""


class Answers(NamedTuple):
    name: str
    logits: np.ndarray
    classes: np.ndarray
    repeats: np.ndarray


@pytest.fixture(scope="module", params=[name for name, _ in MODELS])
def fresh(request: pytest.FixtureRequest, artifacts: Path, data: mnist.Mnist, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What a process that knows nothing but the exported folder answers to all test images."""
    folder = tmp_path_factory.mktemp("fresh")
    np.save(folder / "images.npy", mnist.scale(data.test_images))
    version = artifacts / "models" / request.param / "1"
    command = [sys.executable, "-c", FRESH, str(version), str(folder / "images.npy"), str(folder / "answers.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "answers.npz") as answers:
        return Answers(request.param, **{name: answers[name] for name in ("logits", "classes", "repeats")})


@pytest.mark.slow
def test_a_fresh_process_labels_as_many_images_right_as_the_record_says(fresh: Answers, artifacts: Path, data: mnist.Mnist) -> None:
    assert (fresh.classes == data.test_labels).mean() == record.read(artifacts / "training", fresh.name)["test_accuracy"]
    assert np.array_equal(fresh.classes, fresh.logits.argmax(axis=1))


@pytest.mark.slow
def test_a_fresh_process_answers_as_the_trained_keras_model(fresh: Answers, artifacts: Path, data: mnist.Mnist) -> None:
    model = build(dict(MODELS)[fresh.name])
    model.load_weights(record.weights_path(artifacts / "training", fresh.name))
    assert np.allclose(fresh.logits, predict_logits(model, data.test_images), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_answers_are_logits_and_not_probabilities(fresh: Answers) -> None:
    assert fresh.logits.min() < 0
    assert np.abs(fresh.logits.sum(axis=1) - 1).max() > 0.1
    probabilities = np.exp(fresh.logits - fresh.logits.max(axis=1, keepdims=True))
    assert np.allclose((probabilities / probabilities.sum(axis=1, keepdims=True)).sum(axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_the_same_image_gets_the_same_answer_ten_times(fresh: Answers) -> None:
    assert fresh.repeats.shape == (10, 1, 10)
    assert np.all(fresh.repeats == fresh.repeats[0])


class Watched(NamedTuple):
    folder: Path
    before: dict[str, str]
    done: list[tuple[int, str, str]]
    polls: int
    seen: dict[str, set[tuple[tuple[str, int], ...]]]


@pytest.fixture(scope="module")
def twice_more(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Two exports at once beside version 1, in a copy of the artifacts, and what a watcher of the folder saw."""
    root = tmp_path_factory.mktemp("again")
    for name in ("data", "training"):
        (root / name).symlink_to(artifacts / name)
    folder = root / "models" / "cnn2"
    shutil.copytree(artifacts / "models" / "cnn2", folder)
    for junk in ("9.tmp", "v9", ".9", "latest"):
        (folder / junk).mkdir()
    before = content(folder / "1")
    seen: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    polls, stop = 0, threading.Event()

    def watch() -> None:
        nonlocal polls
        while not stop.is_set():
            for child in folder.iterdir():
                if child.name.isdigit():
                    sizes = ((str(file.relative_to(child)), file.stat().st_size) for file in child.rglob("*") if file.is_file())
                    seen.setdefault(child.name, set()).add(tuple(sorted(sizes)))
            polls += 1
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = [sys.executable, "-m", "export", "--conv-layers", "2", "--batch-sizes", "1", "3", "--artifacts", str(root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    stop.set()
    watcher.join()
    return Watched(folder, before, [(process.returncode, *text) for process, text in zip(both, said, strict=True)], polls, seen)


@pytest.mark.slow
def test_two_exports_at_once_get_the_next_two_numbers(twice_more: Watched) -> None:
    assert [status for status, _, _ in twice_more.done] == [0, 0], twice_more.done
    assert {child.name for child in twice_more.folder.iterdir()} == {"1", "2", "3", "9.tmp", "v9", ".9", "latest"}
    assert {out.split(",")[0] for _, out, _ in twice_more.done} == {f"cnn2: {twice_more.folder}/{number}" for number in (2, 3)}


@pytest.mark.slow
def test_another_export_leaves_the_earlier_version_as_it_was(twice_more: Watched) -> None:
    assert content(twice_more.folder / "1") == twice_more.before


@pytest.mark.slow
def test_a_watcher_never_sees_a_number_without_its_whole_content(twice_more: Watched) -> None:
    assert twice_more.polls > 100
    assert set(twice_more.seen) == {"1", "2", "3"}
    for number, states in twice_more.seen.items():
        (state,) = states
        assert {name for name, _ in state} == CONTENT, number
        assert dict(state) == {name: (twice_more.folder / number / name).stat().st_size for name in CONTENT}


@pytest.mark.slow
def test_warm_up_requests_have_the_batch_sizes_asked_for(twice_more: Watched) -> None:
    file = twice_more.folder / "2" / "assets.extra" / "tf_serving_warmup_requests"
    logs = [prediction_log_pb2.PredictionLog.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(file))]
    assert [log.predict_log.request.inputs["images"].tensor_shape.dim[0].size for log in logs] == [1, 3]


def refused(*arguments: str | Path) -> str:
    """What the export that fails says: one line."""
    done = run_module("export", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("export: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_an_export_without_training_says_to_train_first(tmp_path: Path) -> None:
    assert "no training record at" in refused("--artifacts", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def own_training(trained: Path, tmp_path: Path) -> Iterator[Path]:
    """Artifacts with a training of cnn2 that a test may spoil."""
    (tmp_path / "data").symlink_to(trained / "data")
    (tmp_path / "training").mkdir()
    for name in ("cnn2.json", "cnn2.weights.h5"):
        shutil.copy(trained / "training" / name, tmp_path / "training")
    return tmp_path


def test_weights_of_another_training_are_refused(own_training: Path) -> None:
    with (own_training / "training" / "cnn2.weights.h5").open("ab") as weights:
        weights.write(b"\0")
    assert "not the one that cnn2.json describes" in refused("--conv-layers", "2", "--artifacts", own_training)
    assert not (own_training / "models").exists()


def test_an_export_without_the_data_set_says_to_fetch_it(own_training: Path) -> None:
    (own_training / "data").unlink()
    assert "run 'make data'" in refused("--conv-layers", "2", "--artifacts", own_training)


@pytest.mark.slow
def test_an_accuracy_other_than_the_record_says_is_refused_and_leaves_no_version(own_training: Path) -> None:
    path = own_training / "training" / "cnn2.json"
    facts = json.loads(path.read_text())
    write_json(path, {**facts, "test_accuracy": facts["test_accuracy"] + 1e-4})
    done = run_module("export", "--conv-layers", "2", "--artifacts", own_training)
    assert done.returncode == 2
    assert "its training record says" in done.stderr.splitlines()[-1]
    assert list((own_training / "models" / "cnn2").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--batch-sizes", "0"], "--batch-sizes must be at least 1"), (["--batch-sizes"], "expected at least one")]
)
def test_wrong_arguments_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = run_module("export", *arguments, "--artifacts", tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
