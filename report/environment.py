"""What the numbers depend on, as rows of name and value: host, software, server, client; and what shares a machine."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping

from report import words
from report.records import Gpu, Host, Run

Rows = list[tuple[str, str]]


def tables(run: Run) -> list[tuple[str, Rows]]:
    """Title and rows of each table about the environment; a value that isn't recorded says so."""
    return [
        ("Server", _server(run)),
        ("Load generator", _client(run)),
        ("Host of the load generator", host(run.host)),
        ("Software", _software(run)),
    ]


def host(machine: Host) -> Rows:
    """The rows of one machine."""
    gpus = words.joined([gpu_text(gpu) for gpu in machine.gpus]) or "none seen"
    return [
        ("CPU", _text(machine.cpu_model)),
        ("usable CPUs", words.number(machine.cpus) if machine.cpus is None or machine.cpus % 1 else f"{machine.cpus:.0f}"),
        ("memory", words.size(machine.memory_bytes)),
        ("GPUs", gpus),
        ("kernel", _text(machine.kernel)),
    ]


def gpu_text(gpu: Gpu) -> str:
    """A GPU in a few words."""
    details = [words.size(gpu.memory_bytes)] if gpu.memory_bytes is not None else []
    details += [f"driver {gpu.driver}"] if gpu.driver else []
    return (gpu.name or "unnamed GPU") + (f" ({', '.join(details)})" if details else "")


def threads(run: Run) -> str:
    """The server's thread settings; a setting that wasn't made is "auto (N cpus)", N being what the server may run on."""
    given = run.server.threads
    if isinstance(given, Mapping) and given:
        return ", ".join(f"{name} {automatic(run) if value in (None, 0, 'auto') else value}" for name, value in given.items())
    return _text(given) if given not in (None, {}, [], "", 0, "auto") else automatic(run)


def automatic(run: Run) -> str:
    """What a thread setting left to TensorFlow means here."""
    count: float | None = len(run.server.cpus) if run.server.cpus else None
    if count is None and same_machine(run):
        count = run.host.cpus
    return f"auto ({count:g} cpus)" if count is not None else "auto (number of cpus not recorded)"


def same_machine(run: Run) -> bool:
    """Whether the server's address is a loopback one: server and load generator run on one machine."""
    name = (run.server.address or "").removeprefix("http://").removeprefix("grpc://").rsplit(":", 1)[0].strip("[]")
    if name == "localhost" or name.startswith("unix"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def sharing(run: Run) -> str | None:
    """A sentence on CPUs that server and load generator share, or None where they aren't known to share a machine."""
    if not same_machine(run):
        return None
    if run.server.cpus is None or run.client.cpus is None:
        return "Server and load generator run on one machine; which CPUs each may use isn't recorded: they may share some."
    shared = tuple(sorted(set(run.server.cpus) & set(run.client.cpus)))
    if shared:
        noun = "CPU" if len(shared) == 1 else "CPUs"
        return f"Server and load generator share {noun} {words.cpu_list(shared)}: each takes time from the other, and latencies hold both."
    server, client = words.cpu_list(run.server.cpus), words.cpu_list(run.client.cpus)
    return f"Server (CPUs {server}) and load generator (CPUs {client}) share a machine and no CPU."


def conditions(run: Run) -> str:
    """Loop, load levels, think time, warm-up, window and client in one line: what every number of the run was taken under."""
    parts = []
    closed = sorted({cell.concurrency for cell in run.cells if cell.mode == "closed" and cell.concurrency is not None})
    opened = sorted({cell.offered_per_s for cell in run.cells if cell.mode == "open" and cell.offered_per_s is not None})
    if closed:
        parts.append(f"closed loop, concurrency {words.joined([str(level) for level in closed])}")
    if opened:
        parts.append(f"open loop, {words.joined([words.number(rate) for rate in opened])} requests/s offered")
    parts.append(f"think time {think_time(run)}")
    for name, values in (("warm-up", {cell.warmup_s for cell in run.cells}), ("window", {cell.window_s for cell in run.cells})):
        known = sorted(value for value in values if value is not None)
        if known:
            span = f"{known[0]:.3g} s" if known[0] == known[-1] else f"{known[0]:.3g} to {known[-1]:.3g} s"
            parts.append(f"{name} {span} per cell")
    if run.client.processes is not None:
        processes = "1 load process" if run.client.processes == 1 else f"{run.client.processes} load processes"
        parts.append(processes + (f", channel {run.client.channel}" if run.client.channel else ""))
    return " · ".join(parts)


def think_time(run: Run) -> str:
    """The think time in words."""
    seconds = run.client.think_time_s
    return "not recorded" if seconds is None else "none" if seconds == 0 else f"{seconds:g} s"


def _server(run: Run) -> Rows:
    server = run.server
    return [
        ("engine", words.engine(server)),
        ("version", _text(server.version)),
        ("image", _text(server.image)),
        ("image digest", _text(server.image_digest)),
        ("device", _text(server.device)),
        ("device evidence", _text(server.device_evidence)),
        ("threads", threads(run)),
        ("dynamic batching", _batching(server.batching)),
        ("flags", _text(server.flags)),
        ("address", _text(server.address)),
        ("may run on CPUs", _cpus(server.cpus)),
    ]


def _batching(given: object) -> str:
    if isinstance(given, Mapping) and "enabled" in given:
        rest = {name: value for name, value in given.items() if name != "enabled"}
        return "off" if not given["enabled"] else f"on, {_text(rest)}" if rest else "on"
    return "off" if given is False else _text(given)


def _client(run: Run) -> Rows:
    client, floor = run.client, run.client.floor
    rows = [
        ("ran at", _text(client.location)),
        ("channel", _text(client.channel)),
        ("load processes", _text(client.processes)),
        ("think time", think_time(run)),
        ("deadline", words.duration(client.deadline_s) if client.deadline_s is not None else "not recorded"),
        ("seed", _text(client.seed)),
        ("may run on CPUs", _cpus(client.cpus)),
    ]
    if floor:
        rows.append(("client floor, p50", f"{words.number(floor.p50_us, 3)} µs"))
        rows.append(("client floor, p99", f"{words.number(floor.p99_us, 3)} µs"))
        rows.append(("most that the client can send", f"{words.number(floor.max_requests_per_s, 3)} requests/s"))
    return rows


def _software(run: Run) -> Rows:
    names = {"git_commit": "git commit", "git_dirty": "uncommitted changes"}
    return [(names.get(name, name), _text(value)) for name, value in run.software.items()] or [("software", "not recorded")]


def _cpus(cpus: tuple[int, ...] | None) -> str:
    return words.cpu_list(cpus) if cpus else "not recorded"


def _text(value: object) -> str:
    if value is None or value in ("", [], {}):
        return "not recorded"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
