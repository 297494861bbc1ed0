"""TensorFlow Serving's settings, checked before a server is started with them: its config files and its flags.

The server itself reports a mistake late or not at all: a misspelt flag is ignored, unsorted batch sizes are taken, a relative base
path ends the start inside a container. Rules are those of tensorflow/serving 2.20.0. Everything here raises ServingError, for a
file as `FILE:LINE: what is wrong and what was expected`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from serving import protos
from serving.errors import ServingError

_M = TypeVar("_M", bound=Message)

_KINDS = {
    "bool": """enable_batching enable_per_model_batching_parameters enable_grpc_healthcheck_service enable_profiler enable_model_warmup
        enable_signature_method_name_check enable_serialization_as_tensor_content allow_version_labels_for_unavailable_models
        flush_filesystem_caches remove_unused_fields_from_bundle_metagraph rest_api_enable_cors_support skip_initialize_tpu
        prefer_tflite_model use_alts_credentials version xla_cpu_compilation_enabled xla_gpu_compilation_enabled""",
    "int": """port rest_api_port rest_api_num_threads rest_api_timeout_in_ms grpc_max_threads model_config_file_poll_wait_seconds
        file_system_poll_wait_seconds num_load_threads num_unload_threads max_num_load_retries load_retry_interval_micros
        num_request_iterations_for_warmup tensorflow_session_parallelism tensorflow_intra_op_parallelism
        tensorflow_inter_op_parallelism num_tflite_pools num_tflite_interpreters_per_pool""",
    "float": "per_process_gpu_memory_fraction",
    "text": """grpc_socket_path grpc_channel_arguments model_name model_base_path model_config_file saved_model_tags
        batching_parameters_file tensorflow_session_config_file thread_pool_factory_config_file platform_config_file
        mixed_precision monitoring_config_file ssl_config_file""",
}
FLAGS = {name: kind for kind, names in _KINDS.items() for name in names.split()}
"""The flags of tensorflow_model_server 2.20.0, each with the kind of its value: bool, int, float or text."""

_VALUES = {"bool": r"true|false", "int": r"-?\d+", "float": r"-?\d*\.?\d+", "text": r".*"}
_LARGEST_BATCH = 1000  # what max_batch_size is if the file leaves it out
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<name>[A-Za-z_]\w*)""")


def check_flags(argv: Sequence[str]) -> dict[str, str]:
    """Checks flags of tensorflow_model_server, each as `--name=value`; returns their values by name, of a repeated flag the last.

    Refuses unknown names, with the nearest known one, since the server prints its usage and starts without them; values of
    another kind; and combinations that the server refuses, ignores or goes on without. Raises ServingError.
    """
    values = {}
    for argument in argv:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in FLAGS:
            near = difflib.get_close_matches(name, FLAGS, n=1)
            raise ServingError(f"TensorFlow Serving has no flag '{argument}'" + (f": is --{near[0]} meant?" if near else ""))
        kind = FLAGS[name]
        if not equals and kind == "bool":
            value = "true"
        elif not equals or not re.fullmatch(_VALUES[kind], value):
            expected = {"bool": "true or false", "int": "a whole number", "float": "a number", "text": "a text"}[kind]
            raise ServingError(f"'{argument}': expected --{name}= followed by {expected}")
        values[name] = value
    _check_combinations(values)
    return values


def _check_combinations(values: dict[str, str]) -> None:
    """Refuses flags that are right one by one and wrong together."""
    given = {name for name, value in values.items() if value not in ("", "false", "0")}

    def refuse(condition: object, why: str) -> None:
        if condition:
            raise ServingError(why)

    batching = given & {"enable_batching", "enable_per_model_batching_parameters"}
    refuse(
        "batching_parameters_file" in given and "enable_batching" not in given,
        "--batching_parameters_file needs --enable_batching=true: the server refuses to start otherwise",
    )
    refuse("platform_config_file" in given and batching, "--platform_config_file makes the batching flags void: leave one of them out")
    refuse(
        "monitoring_config_file" in given and "rest_api_port" not in given,
        "--monitoring_config_file needs --rest_api_port: metrics are served on the REST port only",
    )
    refuse(
        "rest_api_port" in given and values["rest_api_port"] == values.get("port", "8500"),
        "--rest_api_port must differ from --port: the server would go on without REST",
    )
    refuse(
        "tensorflow_session_parallelism" in given and given & {"tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"},
        "--tensorflow_session_parallelism sets both intra and inter: leave it out, or both of --tensorflow_{intra,inter}_op_parallelism",
    )
    refuse({"ssl_config_file", "use_alts_credentials"} <= given, "--ssl_config_file and --use_alts_credentials exclude each other")
    refuse(
        any("=" not in item for item in values.get("grpc_channel_arguments", "=").split(",") if item),
        "--grpc_channel_arguments is a comma list of key=value: an item without '=' crashes the server",
    )
    refuse(values.get("mixed_precision", "") not in ("", "bfloat16"), "--mixed_precision knows only bfloat16: any other value is ignored")


def read_model_config(path: Path, labels_allowed: bool = False) -> Any:
    """Reads a ModelServerConfig that lists models. `labels_allowed`: --allow_version_labels_for_unavailable_models is set.

    Raises ServingError if it lists none, or one without name, platform or absolute base path, or with a name or label that
    can't be served.
    """
    # Imported here so that flags and the other files can be checked without tensorflow-serving-api.
    from tensorflow_serving.config import model_server_config_pb2

    text, config = _parse(path, model_server_config_pb2.ModelServerConfig())
    at = _Lines(path, text)
    if config.WhichOneof("config") == "custom_model_config":
        at.refuse("custom_model_config", "custom_model_config ends TensorFlow Serving: expected a model_config_list")
    if not config.model_config_list.config:
        at.refuse("model_config_list", "lists no model: expected model_config_list with a config for each")
    names = set()
    for index, model in enumerate(config.model_config_list.config):
        block = at.line("config", index)
        if not model.name:
            at.refuse("config", 'a model without a name: expected name: "…"', index)
        if model.name in names:
            at.refuse("name", f"model '{model.name}' is listed twice: expected each name once", after=block)
        names.add(model.name)
        if not model.model_platform:
            at.refuse("config", f"model '{model.name}' has no platform: expected model_platform: \"tensorflow\"", index)
        if not model.base_path:
            at.refuse("config", f"model '{model.name}' has no base_path: expected an absolute path or a URI", index)
        if not (model.base_path.startswith("/") or "://" in model.base_path):
            at.refuse("base_path", f"base_path '{model.base_path}' is relative: expected an absolute path or a URI", after=block)
        _check_labels(model, at, block, labels_allowed)
    return config


def _check_labels(model: Any, at: _Lines, block: int, allowed: bool) -> None:
    if not model.version_labels:
        return
    policy = model.model_version_policy
    if policy.WhichOneof("policy_choice") == "specific":
        for label, version in sorted(model.version_labels.items()):
            if version not in policy.specific.versions:
                at.refuse(
                    "version_labels",
                    f"label '{label}' of '{model.name}' is on version {version}, which the policy doesn't load",
                    after=block,
                )
    if not allowed:
        at.refuse(
            "version_labels",
            f"a label of '{model.name}' is refused until its version is AVAILABLE, so at start too: "
            "leave it out, or start with --allow_version_labels_for_unavailable_models=true",
            after=block,
        )


def read_batching(path: Path) -> Any:
    """Reads BatchingParameters (a global file, or a version's batching_params.pbtxt).

    Raises ServingError if a size or number is out of range, or the allowed batch sizes don't rise to max_batch_size: an
    unsorted list is taken by the server and silently pads to a size that is too large.
    """
    text, batching = _parse(path, protos.BatchingParameters())
    parameters: Any = batching
    at = _Lines(path, text)
    lowest = {
        "max_batch_size": 1,
        "batch_timeout_micros": 0,
        "max_enqueued_batches": 1,
        "num_batch_threads": 1,
        "max_execution_batch_size": 1,
    }
    for field, least in lowest.items():
        if parameters.HasField(field) and getattr(parameters, field).value < least:
            at.refuse(field, f"{field} is {getattr(parameters, field).value}: expected at least {least}")
    largest = parameters.max_batch_size.value if parameters.HasField("max_batch_size") else _LARGEST_BATCH
    sizes = list(parameters.allowed_batch_sizes)
    if sizes and (sizes[0] < 1 or sizes != sorted(set(sizes))):
        at.refuse("allowed_batch_sizes", f"allowed_batch_sizes are {sizes}: expected rising sizes from 1 on, each once")
    if sizes and sizes[-1] != largest:
        at.refuse("allowed_batch_sizes", f"the last of allowed_batch_sizes is {sizes[-1]}: expected max_batch_size, {largest}")
    if parameters.HasField("max_execution_batch_size"):
        if not parameters.enable_large_batch_splitting.value:
            at.refuse(
                "max_execution_batch_size", "max_execution_batch_size has no effect: expected enable_large_batch_splitting { value: true }"
            )
        if parameters.max_execution_batch_size.value > largest:
            at.refuse("max_execution_batch_size", f"max_execution_batch_size is larger than max_batch_size: expected at most {largest}")
    return parameters


def read_monitoring(path: Path) -> Any:
    """Reads a MonitoringConfig. Raises ServingError if its path can't be one of a URL."""
    text, config = _parse(path, protos.MonitoringConfig())
    monitoring: Any = config
    where = monitoring.prometheus_config.path
    if where and not where.startswith("/"):
        _Lines(path, text).refuse("path", f"path '{where}' is relative: expected one that starts with /")
    return monitoring


def read_ssl(path: Path) -> Any:
    """Reads an SSLConfig. Raises ServingError if key or certificate is missing, or a path stands where PEM text is expected."""
    text, config = _parse(path, protos.SSLConfig())
    ssl: Any = config
    at = _Lines(path, text)
    for field in ("server_key", "server_cert", "custom_ca"):
        value = getattr(ssl, field)
        if (value or field != "custom_ca") and not value.lstrip().startswith("-----BEGIN"):
            at.refuse(field, f"{field} is not PEM text: expected the contents of the file (-----BEGIN …), not its path")
    return ssl


def _parse(path: Path, message: _M) -> tuple[str, _M]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ServingError(f"{path} can't be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise ServingError(f"{path} is not text in UTF-8: expected a protobuf text file") from problem
    try:
        return text, text_format.Parse(text, message)
    except text_format.ParseError as problem:
        line = problem.GetLine() or 1
        what = re.sub(r"^\d+:\d+ : ", "", str(problem)) + _wrapper_hint(text.split("\n")[line - 1], message)
        raise ServingError(f"{path}:{line}: {' '.join(what.split())}") from problem


def _wrapper_hint(line: str, message: Message) -> str:
    """What to write instead, if the line gives a plain value to a field whose type is a wrapper message."""
    for name, value in re.findall(r"(\w+)\s*:\s*([^\s#,;]+)", line):
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and field.message_type is not None and field.message_type.full_name.startswith("google.protobuf."):
            return f" Write {name} {{ value: {value} }}."
    return ""


class _Lines:
    """Where the names of a text proto stand, as the parser doesn't keep lines once it has read a file."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._names = [(token["name"], text.count("\n", 0, token.start()) + 1) for token in _TOKEN.finditer(text) if token["name"]]

    def line(self, name: str, index: int = 0, after: int = 1) -> int:
        """The line of a field's occurrence by number, from line `after` on; `after` itself if there is no such occurrence."""
        found = [line for each, line in self._names if each == name and line >= after]
        return found[index] if index < len(found) else after

    def refuse(self, name: str, why: str, index: int = 0, after: int = 1) -> NoReturn:
        raise ServingError(f"{self._path}:{self.line(name, index, after)}: {why}")
