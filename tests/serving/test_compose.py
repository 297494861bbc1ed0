"""The compose file: what it starts, what it opens and mounts, and a health check that really runs.

Read as text with a small stand-in for Compose's interpolation; by Compose itself as well where the docker command line has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import configs
from serving.errors import ServingError

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
SERVICES = ("serving-cpu", "serving-gpu")


def compose(**variables: str) -> dict[str, Any]:
    """The compose file with its variables filled in."""
    text = VARIABLE.sub(lambda found: variables.get(found[1], "") or found[2], (ROOT / "compose.yaml").read_text())
    assert "${" not in text, "write a variable as ${NAME:-default}: the plainest form works with every compose"
    return yaml.safe_load(text)


def documented() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    return compose()["services"][request.param]


def test_every_variable_is_documented_with_its_default() -> None:
    assert documented() == dict(VARIABLE.findall((ROOT / "compose.yaml").read_text()))


def test_plain_up_starts_nothing_and_each_service_has_a_profile_of_its_own() -> None:
    services = compose()["services"]
    assert {name: services[name]["profiles"] for name in services} == {"serving-cpu": ["cpu"], "serving-gpu": ["gpu"]}


def test_images_can_be_replaced_one_by_one() -> None:
    services = compose(TFS_IMAGE_CPU="localhost/stand-in:2.20.0")["services"]
    assert services["serving-cpu"]["image"] == "localhost/stand-in:2.20.0"
    assert services["serving-gpu"]["image"] == "tensorflow/serving:2.20.0-gpu"


def test_ports_are_on_loopback_and_lead_to_the_ports_inside(service: dict[str, Any]) -> None:
    given = configs.check_flags(service["command"])
    inside = [given["port"], given["rest_api_port"]]
    assert inside == ["8500", "8501"]
    assert [port.split(":")[::2] for port in service["ports"]] == [["127.0.0.1", port] for port in inside]


def test_cpu_and_gpu_have_different_ports_on_the_host() -> None:
    outside = [port.split(":")[1] for name in SERVICES for port in compose()["services"][name]["ports"]]
    assert outside == ["8500", "8501", "8510", "8511"]


def test_flags_are_known_to_the_server_and_set_what_its_defaults_get_wrong(service: dict[str, Any]) -> None:
    given = configs.check_flags(service["command"])
    assert int(given["grpc_max_threads"]) >= 64
    assert "grpc.so_reuseport=0" in given["grpc_channel_arguments"].split(",")
    assert given["monitoring_config_file"]


def test_misspelt_flag_in_the_command_is_found(service: dict[str, Any]) -> None:
    with pytest.raises(ServingError, match="is --enable_batching meant"):
        configs.check_flags([flag.replace("enable_batching", "enable_bathcing") for flag in service["command"]])


def test_batching_is_off_until_both_variables_turn_it_on(service: dict[str, Any]) -> None:
    assert configs.check_flags(service["command"])["enable_batching"] == "false"
    on = compose(TFS_BATCHING="true", TFS_BATCHING_FILE="/config/batching.config")["services"]["serving-cpu"]["command"]
    assert configs.check_flags(on)["batching_parameters_file"] == "/config/batching.config"
    with pytest.raises(ServingError, match="needs --enable_batching=true"):
        configs.check_flags(compose(TFS_BATCHING_FILE="/config/batching.config")["services"]["serving-cpu"]["command"])


def test_configs_and_models_are_mounted_read_only_where_the_flags_look_for_them(service: dict[str, Any]) -> None:
    mounts = {mount["target"]: mount for mount in service["volumes"] if mount["type"] == "bind"}
    assert {target: mount["source"] for target, mount in mounts.items()} == {"/models": "./artifacts/models", "/config": "./docker"}
    for mount in mounts.values():
        assert mount["read_only"]
        assert mount["bind"] == {"create_host_path": False}
    given = configs.check_flags(service["command"])
    for flag in ("model_config_file", "monitoring_config_file"):
        assert (ROOT / "docker" / Path(given[flag]).relative_to("/config")).is_file()
    models = configs.read_model_config(ROOT / "docker" / "models.config").model_config_list.config
    assert all(Path(model.base_path).is_relative_to("/models") for model in models)


def test_container_can_write_nothing_and_has_no_privileges(service: dict[str, Any]) -> None:
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] > 0


def test_stopping_needs_an_init_because_the_entry_point_passes_no_signals_on(service: dict[str, Any]) -> None:
    assert service["init"] is True
    assert service["stop_grace_period"] == "15s"


def test_cores_are_limited_by_a_set_and_never_by_a_quota_that_thread_pools_cannot_see(service: dict[str, Any]) -> None:
    assert service["cpuset"] == ""
    assert not {"cpus", "cpu_quota", "cpu_period"} & service.keys()
    assert "limits" not in service.get("deploy", {}).get("resources", {})


def test_only_the_gpu_service_reserves_a_gpu_with_driver_count_and_capability() -> None:
    services = compose()["services"]
    assert services["serving-gpu"]["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    ]
    assert "deploy" not in services["serving-cpu"]


def test_compiled_gpu_code_is_kept_in_a_volume() -> None:
    whole = compose()
    gpu = whole["services"]["serving-gpu"]
    cache = {"type": "volume", "source": "cuda-cache", "target": gpu["environment"]["CUDA_CACHE_PATH"]}
    assert cache in gpu["volumes"]
    assert "cuda-cache" in whole["volumes"]


def test_health_check_asks_seldom_and_waits_long_for_a_gpu() -> None:
    checks = {name: compose()["services"][name]["healthcheck"] for name in SERVICES}
    assert all(int(check["interval"].removesuffix("s")) >= 10 for check in checks.values())
    assert checks["serving-gpu"]["start_period"] == "30m"


def test_health_check_asks_for_every_model_that_is_served(service: dict[str, Any]) -> None:
    command = service["healthcheck"]["test"]
    assert command[:3] == ["CMD", "bash", "/config/healthcheck.bash"]
    models = configs.read_model_config(ROOT / "docker" / "models.config").model_config_list.config
    assert command[3:] == [model.name for model in models]


@contextlib.contextmanager
def rest_server(states: dict[str, str], keep_open: bool = False) -> Iterator[int]:
    """A REST port that answers for each model with a state as TensorFlow Serving words it, and 404 for others."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            state = states.get(self.path.removeprefix("/v1/models/"))
            status = {"version": "1", "state": state, "status": {"error_code": "OK", "error_message": 'not "AVAILABLE"'}}
            body = json.dumps({"model_version_status": [status]} if state else {"error": "not found"}, indent=1).encode()
            self.send_response(200 if state else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = not keep_open

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def health(service: dict[str, Any], port: int, folder: Path) -> int:
    """Runs a service's health check with nothing but bash to be found; returns its exit status."""
    bash = shutil.which("bash")
    assert bash
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin" / "bash").exists():
        (folder / "bin" / "bash").symlink_to(bash)
    command = [argument.replace("/config/", f"{ROOT}/docker/") for argument in service["healthcheck"]["test"][1:]]
    environment = {"PATH": str(folder / "bin"), "REST_PORT": str(port)}
    return subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False).returncode


def test_health_check_is_content_when_both_models_are_available(service: dict[str, Any], tmp_path: Path) -> None:
    with rest_server({"cnn2": "AVAILABLE", "cnn4": "AVAILABLE"}) as port:
        assert health(service, port, tmp_path) == 0


@pytest.mark.parametrize(
    "states",
    [
        {"cnn2": "LOADING", "cnn4": "LOADING"},
        {"cnn2": "AVAILABLE", "cnn4": "LOADING"},
        {"cnn2": "END", "cnn4": "AVAILABLE"},
        {"cnn2": "AVAILABLE"},
    ],
)
def test_health_check_fails_while_a_model_is_loading_gone_or_unknown(
    service: dict[str, Any], tmp_path: Path, states: dict[str, str]
) -> None:
    with rest_server(states) as port:
        assert health(service, port, tmp_path) != 0


def test_health_check_fails_when_nothing_listens(service: dict[str, Any], tmp_path: Path) -> None:
    with rest_server({}) as port:
        pass
    assert health(service, port, tmp_path) != 0


def test_health_check_does_not_hang_on_a_server_that_keeps_the_connection_open(tmp_path: Path) -> None:
    with rest_server({"cnn2": "LOADING", "cnn4": "LOADING"}, keep_open=True) as port:
        assert health(compose()["services"]["serving-cpu"], port, tmp_path) != 0


def has_compose() -> bool:
    return (
        bool(shutil.which("docker")) and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not has_compose(), reason="docker compose isn't installed")
def test_compose_itself_reads_the_file_and_naming_a_service_is_enough(tmp_path: Path) -> None:
    def config(*arguments: str, **variables: str) -> dict[str, Any]:
        command = ["docker", "compose", "--project-directory", str(ROOT), "-f", str(ROOT / "compose.yaml"), "--env-file", os.devnull]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TFS_", "COMPOSE_"))} | variables
        done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "variable is not set" not in done.stderr
        return json.loads(done.stdout)

    assert config("config", "--format", "json")["services"] == {}
    for name in SERVICES:
        services = config("config", "--format", "json", name)["services"]
        assert list(services) == [name]
        assert {port["host_ip"] for port in services[name]["ports"]} == {"127.0.0.1"}
        assert configs.check_flags(services[name]["command"])
    pinned = config("--profile", "cpu", "config", "--format", "json", TFS_CPUSET="0-1")["services"]["serving-cpu"]
    assert pinned["cpuset"] == "0-1"
