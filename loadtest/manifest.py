"""What run.json says besides its cells: machine, software, server, client, training records."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loadtest.cells import Settings
from loadtest.target import Target
from serving.endpoint import Endpoint
from train.environment import host, software


@dataclasses.dataclass(frozen=True)
class Environment:
    """Facts that need subprocesses to find out, so they are gathered before a channel is opened."""

    host: dict[str, object]
    software: dict[str, object]

    @classmethod
    def gather(cls) -> Environment:
        """The machine and software of this process."""
        return cls(host(), software())


def training_record(models: Path, target: Target) -> dict[str, Any] | None:
    """The training record that travels with the version that the server answers with, where its folder is at hand."""
    from export.records import read_record

    return read_record(models / target.model / str(target.version))


def head(
    environment: Environment, endpoint: Endpoint, settings: Settings, processes: int, records: dict[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    """All of run.json but its cells, its notes and what `RunWriter` adds."""
    own = sorted(os.sched_getaffinity(0))
    return {
        "command": list(command),
        "host": environment.host,
        "software": environment.software,
        "server": dataclasses.asdict(endpoint),
        "training": records,
        "client": {
            "channel": settings.channel,
            "processes": processes,
            "cpus": own,
            "location": "container" if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() else "host",
            "deadline_s": settings.deadline_s,
            "think_time_s": 0,
            "seed": settings.seed,
            "floor": None,
        },
    }


def notes(endpoint: Endpoint, variables: Iterable[str]) -> list[str]:
    """Remarks on the run as a whole: CPUs that client and server share, proxies that were passed by, names in the address."""
    found = []
    own = sorted(os.sched_getaffinity(0))
    local = endpoint.address.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")
    if local and endpoint.cpus and (shared := sorted(set(own) & set(endpoint.cpus))):
        found.append(
            f"client and server share the CPUs {_ranges(shared)} (client {_ranges(own)}, server {_ranges(endpoint.cpus)}): "
            "each slows the other, so latencies are upper bounds of what the server takes by itself"
        )
    proxies = sorted(name for name in variables if name in ("http_proxy", "https_proxy", "grpc_proxy"))
    if proxies:
        found.append(f"the proxy variables {', '.join(proxies)} were passed by: the load goes straight to the server")
    if any(char.isalpha() for char in endpoint.address.rpartition(":")[0].strip("[]")) and ":" not in endpoint.address.rpartition(":")[0]:
        found.append(f"the server is addressed by name ({endpoint.address}): resolving it may be part of a connection's time")
    return found


def _ranges(cpus: Sequence[int]) -> str:
    text: list[str] = []
    for cpu in cpus:
        if text and int(text[-1].split("–")[-1]) == cpu - 1:
            text[-1] = f"{text[-1].split('–')[0]}–{cpu}"
        else:
            text.append(str(cpu))
    return ", ".join(text)
