from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from serving import answers, embedded
from serving.errors import ServingError
from serving.servable import Servable, fits
from tests.serving.building import WARMUP, X, add_warm_up, request_for, times, v1, write_model


def loaded(version: Path) -> dict[str, Servable]:
    return {"tiny": Servable("tiny", version, threads=1)}


@pytest.mark.parametrize("name", ["11.tmp", "v12", "-13", "+14", " 15", "1.6", "tmp-17", ".18", "٢٠", "²", "9223372036854775808"])
def test_the_newest_version_is_served_and_names_that_are_no_versions_are_not(tmp_path: Path, name: str) -> None:
    for version in (1, 2, 10):
        write_model(tmp_path / "tiny" / str(version), times(version))
    (tmp_path / "tiny" / name).mkdir()
    (tmp_path / "README").write_text("not a model")
    (tmp_path / "no versions").mkdir()
    models = embedded.load(tmp_path, threads=1)
    assert list(models) == ["tiny"]
    response = answers.predict(models, request_for("tiny", x=X))
    assert response.model_spec.version.value == 10
    assert tf.make_ndarray(response.outputs["y"]).tolist() == (X * 10).tolist()


def test_zeros_before_a_version_number_are_not_part_of_it(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny" / "00000123", times(2))
    assert embedded.load(tmp_path, threads=1)["tiny"].version == 123


def test_every_warm_up_request_is_run_and_counted(tmp_path: Path) -> None:
    version = write_model(tmp_path / "1", times(2))
    requests = [request_for("tiny", x=np.ones((size, 3), np.float32)) for size in (1, 8, 32)]
    add_warm_up(version, *requests)
    seen = []
    assert Servable("tiny", version, threads=1).warm_up(version, seen.append) == 3
    assert seen == requests


def test_a_version_without_warm_up_requests_is_served_cold(tmp_path: Path) -> None:
    version = write_model(tmp_path / "1", times(2))
    assert Servable("tiny", version, threads=1).warm_up(version, pytest.fail) == 0


def test_exported_models_are_warmed_with_the_batch_sizes_of_the_benchmark(artifacts: Path) -> None:
    version = artifacts / "models" / "cnn2" / "1"
    sizes = []
    Servable("cnn2", version, threads=2).warm_up(version, lambda request: sizes.append(request.inputs["images"].tensor_shape.dim[0].size))
    assert sizes == [1, 8, 32, 128]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def damage_record(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)


def not_a_log(path: Path) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("damage", [cut, damage_record, not_a_log])
def test_a_damaged_warm_up_file_keeps_a_version_from_being_served(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    version = write_model(tmp_path / "tiny" / "1", times(2))
    add_warm_up(version, request_for("tiny", x=X), request_for("tiny", x=X))
    damage(version / WARMUP)
    with pytest.raises(ServingError, match=r"tiny version 1 fails its warm-up: ."):
        embedded.load(tmp_path, threads=1)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (request_for("tiny", x=np.ones((1, 4), np.float32)), "input x has shape"),
        (request_for("tiny", x=np.ones((1, 3))), "to be float but double"),
        (request_for("other", x=X), "Servable not found"),
        (request_for("tiny", z=X), "input alias: x"),
        (request_for("tiny", x=X * np.nan), "NaN"),
    ],
    ids=["shape", "dtype", "model", "alias", "in the graph"],
)
def test_a_warm_up_request_that_fails_keeps_a_version_from_being_served(
    tmp_path: Path, request_: predict_pb2.PredictRequest, reason: str
) -> None:
    def refuses_nan() -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        return {"x": x}, {"y": tf.debugging.check_numerics(x, "here")}

    version = write_model(tmp_path / "tiny" / "1", refuses_nan)
    add_warm_up(version, request_)
    with pytest.raises(ServingError, match=f"tiny version 1 fails its warm-up: .*{reason}"):
        embedded.load(tmp_path, threads=1)


def test_a_failure_without_words_is_named_by_its_kind(tmp_path: Path) -> None:
    def fails(_: Any) -> None:
        raise RuntimeError

    version = write_model(tmp_path / "1", times(2))
    add_warm_up(version, request_for("tiny", x=X))
    with pytest.raises(ServingError, match="fails its warm-up: RuntimeError"):
        Servable("tiny", version, threads=1).warm_up(version, fails)


def without_shard(version: Path) -> None:
    next(version.glob("variables/*.data-*")).unlink()


def without_index(version: Path) -> None:
    (version / "variables" / "variables.index").unlink()


def half_a_shard(version: Path) -> None:
    shard = next(version.glob("variables/*.data-*"))
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])


def without_graph(version: Path) -> None:
    (version / "saved_model.pb").unlink()


def garbage_graph(version: Path) -> None:
    (version / "saved_model.pb").write_bytes(b"\xff" * 100)


def plain_file(version: Path) -> None:
    shutil.rmtree(version)
    version.write_text("not a folder")


@pytest.mark.parametrize("breakage", [without_shard, without_index, half_a_shard, without_graph, garbage_graph, plain_file])
def test_a_broken_version_is_refused_in_one_line(artifacts: Path, tmp_path: Path, breakage: Callable[[Path], None]) -> None:
    version = shutil.copytree(artifacts / "models" / "cnn2" / "1", tmp_path / "cnn2" / "1")
    breakage(version)
    with pytest.raises(ServingError, match=r"^cnn2 version 1 (can't be loaded|fails its warm-up): .+$") as refused:
        embedded.load(tmp_path, threads=1)
    assert len(str(refused.value).splitlines()) == 1


def test_a_model_saved_with_other_tags_is_refused(tmp_path: Path) -> None:
    version = tmp_path / "tiny" / "1"
    builder = v1.saved_model.Builder(str(version))
    with tf.Graph().as_default(), v1.Session() as session:
        builder.add_meta_graph_and_variables(session, ["train"])
    builder.save()
    with pytest.raises(ServingError, match="tiny version 1 can't be loaded"):
        embedded.load(tmp_path, threads=1)


def test_a_model_without_a_signature_is_refused_with_what_to_do(tmp_path: Path) -> None:
    version = tmp_path / "tiny" / "1"
    builder = v1.saved_model.Builder(str(version))
    with tf.Graph().as_default(), v1.Session() as session:
        builder.add_meta_graph_and_variables(session, ["serve"])
    builder.save()
    with pytest.raises(ServingError, match="no signature that can be run: export it with"):
        embedded.load(tmp_path, threads=1)


def test_a_keras_model_saved_without_an_export_archive_is_not_served(tmp_path: Path) -> None:
    # Python's own loader takes it; the session loader finds its variables only if they are tracked.
    inputs = tf.keras.Input((3,), name="x")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs))
    tf.saved_model.save(model, str(tmp_path / "tiny" / "1"))
    add_warm_up(tmp_path / "tiny" / "1", request_for("tiny", keras_tensor=X))
    with pytest.raises(ServingError, match="tiny version 1 fails its warm-up"):
        embedded.load(tmp_path, threads=1)


def many_types() -> tuple[dict[str, Any], dict[str, Any]]:
    count = v1.placeholder(tf.int64, [None], name="count")
    flag = v1.placeholder(tf.bool, [], name="flag")
    name = v1.placeholder(tf.string, [], name="name")
    share = v1.placeholder(tf.float64, None, name="share")
    inputs = {"count": count, "flag": flag, "name": name, "share": share}
    outputs = {"double": count * 2, "not": tf.logical_not(flag), "twice": tf.strings.join([name, name]), "half": share / 2}
    return inputs, {**outputs, "none": tf.zeros([0, 2], tf.int32), "byte": tf.cast(count, tf.uint8)}


GIVEN = {"count": np.array([1, -2, 2**40]), "flag": np.bool_(True), "name": b"ab\0", "share": np.array([[1.0, np.inf]])}


def test_every_input_and_output_keeps_its_own_type_and_shape(tmp_path: Path) -> None:
    models = loaded(write_model(tmp_path / "1", many_types))
    outputs = answers.predict(models, request_for("tiny", **GIVEN)).outputs
    assert sorted(outputs) == ["byte", "double", "half", "none", "not", "twice"]
    assert list(outputs["double"].int64_val) == [2, -4, 2**41]
    assert list(outputs["not"].bool_val) == [False]
    assert list(outputs["twice"].string_val) == [b"ab\0ab\0"]
    assert list(outputs["half"].double_val) == [0.5, np.inf]
    assert list(outputs["byte"].int_val) == [1, 254, 0]
    shapes = {alias: [dim.size for dim in proto.tensor_shape.dim] for alias, proto in outputs.items()}
    assert shapes == {"byte": [3], "double": [3], "half": [1, 2], "none": [0, 2], "not": [], "twice": []}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": None}, "input size does not match signature: 3!=4 len({flag,name,share}) != len({count,flag,name,share})."),
        ({"more": 1.0}, "Sent extra: {more}. Missing but required: {}."),
        ({"name": None, "nome": b"x"}, "Signature input alias: name(feed name: name:0) not found in request"),
        ({"name": 1.5}, "Expects arg[2] to be string but float is provided"),
        ({"count": np.array([1], np.int32)}, "Expects arg[0] to be int64 but int32 is provided"),
        ({"flag": np.array([True])}, "input flag has shape [1], the signature says []"),
    ],
)
def test_a_refusal_names_the_input_that_is_wrong_among_several(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    models = loaded(write_model(tmp_path / "1", many_types))
    given = {alias: value for alias, value in {**GIVEN, **change}.items() if value is not None}
    with pytest.raises(answers.Refusal) as refused:
        answers.predict(models, request_for("tiny", **given))
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert text in refused.value.text


def test_what_the_graph_refuses_keeps_its_code_and_words_and_the_model_lives(tmp_path: Path) -> None:
    def picks() -> tuple[dict[str, Any], dict[str, Any]]:
        index = v1.placeholder(tf.int32, [None], name="index")
        return {"index": index}, {"picked": tf.gather(tf.constant([10, 20, 30]), index)}

    models = loaded(write_model(tmp_path / "1", picks))
    with pytest.raises(answers.Refusal) as refused:
        answers.predict(models, request_for("tiny", index=np.array([7], np.int32)))
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert refused.value.text.startswith("indices[0] = 7 is not in [0, 3)")
    response = answers.predict(models, request_for("tiny", index=np.array([2, 0], np.int32)))
    assert list(response.outputs["picked"].int_val) == [30, 10]


def test_answers_that_are_not_finite_keep_their_place(tmp_path: Path) -> None:
    models = loaded(write_model(tmp_path / "1", times(1)))
    response = answers.predict(models, request_for("tiny", x=np.array([[1, np.nan, -np.inf]], np.float32)))
    assert np.array_equal(list(response.outputs["y"].float_val), [1, np.nan, -np.inf], equal_nan=True)


def test_an_empty_batch_that_the_graph_can_do_is_answered_empty(tmp_path: Path) -> None:
    models = loaded(write_model(tmp_path / "1", times(1)))
    y = answers.predict(models, request_for("tiny", x=np.empty((0, 3), np.float32))).outputs["y"]
    assert [dim.size for dim in y.tensor_shape.dim] == [0, 3]
    assert list(y.float_val) == []


sizes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(sizes, st.data())
def test_a_shape_fits_what_it_was_declared_as_with_any_dimension_free(shape: tuple[int, ...], data: st.DataObject) -> None:
    freed = data.draw(st.tuples(*[st.booleans()] * len(shape)))
    assert fits(shape, tuple(None if free else size for size, free in zip(shape, freed, strict=True)))
    assert fits(shape, None)


@given(sizes, sizes)
def test_a_shape_fits_another_only_if_they_are_equal(shape: tuple[int, ...], declared: tuple[int, ...]) -> None:
    assert fits(shape, declared) == (shape == declared)
    assert not fits(shape, (*shape, None))
