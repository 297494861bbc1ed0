"""Config files and flags of TensorFlow Serving: the project's own are right, and each known mistake is refused where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import configs, protos
from serving.errors import ServingError

DOCKER = Path(__file__).parents[2] / "docker"

PEM = "-----BEGIN CERTIFICATE-----\\nMAo=\\n-----END CERTIFICATE-----\\n"

MODEL = """\
# one model, commented: config { name: "not this one" }
model_config_list {
  config {
    name: "cnn2"
    base_path: "/models/cnn2"
    model_platform: "tensorflow"
  }
}
"""

PIECES = r"""
    max_batch_size model_config_list config name base_path value prometheus_config path server_key allowed_batch_sizes
    { } < > : [ ] [a.b/c] , ; # 'a' "a "\x" "\777" "\ud800" -1 0 99999999999999999999 1e999 inf nan true -
"""
"""What text protos of every kind are made of, in pieces that may or may not fit together."""

LABELLED = MODEL.replace(
    '"tensorflow"\n',
    '"tensorflow"\n    model_version_policy { specific { versions: 1 versions: 2 } }\n    version_labels { key: "stable" value: 2 }\n',
)


def refusal(read: Callable[[Path], object], folder: Path, text: str) -> str:
    """What `read` says of a file that holds `text`, without the folder."""
    path = folder / "it.config"
    path.write_text(text)
    with pytest.raises(ServingError) as refused:
        read(path)
    said = str(refused.value)
    assert "\n" not in said
    return said.removeprefix(f"{folder}/")


def test_model_config_of_the_project_serves_both_models_from_the_mounted_folder() -> None:
    config = configs.read_model_config(DOCKER / "models.config")
    assert {each.name: each.base_path for each in config.model_config_list.config} == {"cnn2": "/models/cnn2", "cnn4": "/models/cnn4"}


def test_batching_config_of_the_project_takes_the_largest_batch_that_is_sent() -> None:
    batching = configs.read_batching(DOCKER / "batching.config")
    assert batching.max_batch_size.value >= 128
    assert set(batching.allowed_batch_sizes) >= {1, 8, 32, 128}


def test_monitoring_config_of_the_project_turns_prometheus_on_at_the_usual_path() -> None:
    monitoring = configs.read_monitoring(DOCKER / "monitoring.config")
    assert monitoring.prometheus_config.enable
    assert monitoring.prometheus_config.path == "/monitoring/prometheus/metrics"


def test_every_config_of_the_project_has_a_test_here() -> None:
    assert {path.name for path in DOCKER.glob("*.config")} == {"models.config", "batching.config", "monitoring.config"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_config_list {\n  config {\n    nam: 'a'\n  }\n}\n", "it.config:3: "),
        (MODEL.replace('"/models/cnn2"', '"models/cnn2"'), "it.config:5: base_path 'models/cnn2' is relative: expected an absolute path"),
        (MODEL.replace('    base_path: "/models/cnn2"\n', ""), "it.config:3: model 'cnn2' has no base_path"),
        (MODEL.replace('    model_platform: "tensorflow"\n', ""), "it.config:3: model 'cnn2' has no platform: expected model_platform"),
        (MODEL.replace('    name: "cnn2"\n', ""), "it.config:3: a model without a name"),
        (MODEL.rstrip("}\n") + "  }\n" + "\n".join(MODEL.splitlines()[2:]), "it.config:9: model 'cnn2' is listed twice"),
        ("model_config_list {\n}\n", "it.config:1: lists no model"),
        ("", "it.config:1: lists no model"),
        ("\ncustom_model_config { }\n", "it.config:2: custom_model_config ends TensorFlow Serving"),
        (LABELLED, "it.config:8: a label of 'cnn2' is refused until its version is AVAILABLE, so at start too: leave it out, or"),
        (LABELLED.replace("value: 2", "value: 3"), "it.config:8: label 'stable' of 'cnn2' is on version 3, which the policy doesn't load"),
    ],
)
def test_wrong_model_config_is_refused_at_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(configs.read_model_config, tmp_path, text).startswith(said)


def test_label_passes_when_the_server_is_started_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "it.config").write_text(LABELLED)
    assert configs.read_model_config(tmp_path / "it.config", labels_allowed=True)


def test_base_path_may_be_a_uri(tmp_path: Path) -> None:
    (tmp_path / "it.config").write_text(MODEL.replace("/models/cnn2", "s3://bucket/cnn2"))
    assert configs.read_model_config(tmp_path / "it.config")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_batch_size: 128\n", "it.config:1: 'max_batch_size: 128': Expected \"{\". Write max_batch_size { value: 128 }."),
        (
            "max_batch_size { value: 16 }\nallowed_batch_sizes: [8, 4, 16]",
            "it.config:2: allowed_batch_sizes are [8, 4, 16]: expected rising",
        ),
        ("max_batch_size { value: 8 }\nallowed_batch_sizes: 8\nallowed_batch_sizes: 8", "it.config:2: allowed_batch_sizes are [8, 8]"),
        ("max_batch_size { value: 8 }\nallowed_batch_sizes: [0, 8]", "it.config:2: allowed_batch_sizes are [0, 8]"),
        (
            "max_batch_size { value: 64 }\nallowed_batch_sizes: [1, 32]",
            "it.config:2: the last of allowed_batch_sizes is 32: expected max_batch_size, 64",
        ),
        ("allowed_batch_sizes: [1, 32]", "it.config:1: the last of allowed_batch_sizes is 32: expected max_batch_size, 1000"),
        ("# max_batch_size\nmax_batch_size { value: 0 }", "it.config:2: max_batch_size is 0: expected at least 1"),
        ("num_batch_threads { value: 0 }", "it.config:1: num_batch_threads is 0: expected at least 1"),
        ("batch_timeout_micros { value: -1 }", "it.config:1: batch_timeout_micros is -1: expected at least 0"),
        ("max_execution_batch_size { value: 8 }", "it.config:1: max_execution_batch_size has no effect"),
        (
            "max_batch_size { value: 4 }\nenable_large_batch_splitting { value: true }\nmax_execution_batch_size { value: 8 }",
            "it.config:3: max_execution_batch_size is larger than max_batch_size: expected at most 4",
        ),
        ("max_batch_sise { value: 1 }", "it.config:1: Message type"),
        ("max_batch_size { value: 1 }\nmax_batch_size { value: 2", "it.config:2: "),
    ],
)
def test_wrong_batching_parameters_are_refused_at_their_line(tmp_path: Path, text: str, said: str) -> None:
    assert refusal(configs.read_batching, tmp_path, text).startswith(said)


@settings(deadline=None)
@given(st.lists(st.integers(1, 4096), min_size=1, max_size=8, unique=True), st.integers(0, 10**9))
def test_batching_parameters_come_back_as_they_were_written_and_only_in_rising_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], timeout: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.config"
    written = protos.BatchingParameters(allowed_batch_sizes=sizes)
    written.max_batch_size.value, written.batch_timeout_micros.value = max(sizes), timeout
    path.write_text(text_format.MessageToString(written))
    if sizes == sorted(sizes):
        assert configs.read_batching(path) == written
    else:
        with pytest.raises(ServingError, match="rising"):
            configs.read_batching(path)


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES.split()), max_size=12).map(" ".join)))
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.config"
    path.write_text(text, encoding="utf-8")
    for read in (configs.read_model_config, configs.read_batching, configs.read_monitoring, configs.read_ssl):
        said = "accepted"
        try:
            read(path)
        except ServingError as problem:
            said = str(problem).replace(str(path), "refused")
        assert re.fullmatch("accepted|refused:[0-9]+: .+", said)


def test_fields_have_the_servers_numbers() -> None:
    batching = protos.BatchingParameters(allowed_batch_sizes=[1], pad_variable_length_inputs=True)
    for field in ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads", "max_execution_batch_size"):
        getattr(batching, field).value = 1
    batching.thread_pool_name.value = "x"
    batching.enable_large_batch_splitting.value = True
    # Tag bytes are number * 8 + 2 for a message, a string or packed numbers, and number * 8 for a bool.
    assert batching.SerializeToString(deterministic=True).hex(" ", 4).replace(" ", "") == (
        "0a020801120208011a020801220208012a030a01783201013801420208014a020801"
    )
    assert protos.MonitoringConfig.FromString(b"\x0a\x05\x08\x01\x12\x01/").prometheus_config.path == "/"
    assert protos.SSLConfig(server_key="a", server_cert="b", custom_ca="c", client_verify=True).SerializeToString() == (
        b"\x0a\x01a\x12\x01b\x1a\x01c\x20\x01"
    )


def test_metrics_path_must_be_absolute(tmp_path: Path) -> None:
    text = 'prometheus_config {\n  enable: true\n  path: "metrics"\n}\n'
    assert refusal(configs.read_monitoring, tmp_path, text).startswith("it.config:3: path 'metrics' is relative")


def test_ssl_config_holds_pem_text_and_not_paths(tmp_path: Path) -> None:
    good = f'server_key: "{PEM}"\nserver_cert: "{PEM}"\nclient_verify: true\n'
    (tmp_path / "it.config").write_text(good)
    assert configs.read_ssl(tmp_path / "it.config").client_verify
    said = refusal(configs.read_ssl, tmp_path, f'server_key: "{PEM}"\nserver_cert: "/etc/ssl/server.pem"\n')
    assert said.startswith("it.config:2: server_cert is not PEM text: expected the contents")
    assert refusal(configs.read_ssl, tmp_path, "client_verify: true\n").startswith("it.config:1: server_key is not PEM text")


def test_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="can't be read: No such file"):
        configs.read_batching(tmp_path / "none.config")
    (tmp_path / "binary.config").write_bytes(b"\xff\xfe")
    with pytest.raises(ServingError, match="not text"):
        configs.read_batching(tmp_path / "binary.config")


def test_48_flags_are_known() -> None:
    assert len(configs.FLAGS) == 48


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--enable_bathcing=true", "--enable_batching"),
        ("--model_config=/x", "--model_config_file"),
        ("--rest-api-port=8501", "--rest_api_port"),
        ("-port=8500", "--port"),
    ],
)
def test_misspelt_flag_is_refused_with_the_nearest_name(flag: str, nearest: str) -> None:
    with pytest.raises(ServingError, match=f"no flag '{flag}': is {nearest} meant"):
        configs.check_flags([flag])


@pytest.mark.parametrize(
    "flag",
    ["--port=eight", "--port=", "--port", "--enable_batching=yes", "--per_process_gpu_memory_fraction=half", "--model_name", "8500", ""],
)
def test_flag_with_a_value_of_another_kind_or_none_is_refused(flag: str) -> None:
    with pytest.raises(ServingError):
        configs.check_flags([flag])


def test_last_of_a_repeated_flag_counts_and_a_bare_boolean_is_true() -> None:
    assert configs.check_flags(["--port=1", "--enable_batching", "--port=2"]) == {"port": "2", "enable_batching": "true"}


@pytest.mark.parametrize(
    "flags",
    [
        "--batching_parameters_file=/b",
        "--batching_parameters_file=/b --enable_batching=false",
        "--platform_config_file=/p --enable_batching=true",
        "--platform_config_file=/p --enable_per_model_batching_parameters=true",
        "--monitoring_config_file=/m",
        "--monitoring_config_file=/m --rest_api_port=0",
        "--rest_api_port=8500",
        "--port=9000 --rest_api_port=9000",
        "--tensorflow_session_parallelism=2 --tensorflow_inter_op_parallelism=2",
        "--ssl_config_file=/s --use_alts_credentials=true",
        "--grpc_channel_arguments=grpc.so_reuseport",
        "--mixed_precision=float16",
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: str) -> None:
    with pytest.raises(ServingError, match="--"):
        configs.check_flags(flags.split())


@pytest.mark.parametrize(
    "flags",
    [
        "--batching_parameters_file= --enable_batching=false",
        "--batching_parameters_file=/b --enable_batching=true",
        "--monitoring_config_file=/m --rest_api_port=8501",
        "--tensorflow_session_parallelism=0 --tensorflow_inter_op_parallelism=2",
        "--grpc_channel_arguments=grpc.so_reuseport=0,grpc.max_concurrent_streams=100",
        "--per_process_gpu_memory_fraction=0.5 --mixed_precision=bfloat16",
    ],
)
def test_flags_that_go_together_pass(flags: str) -> None:
    configs.check_flags(flags.split())
