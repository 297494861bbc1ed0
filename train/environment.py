"""What a measurement was made on: the machine and the software, as every record states them."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parent.parent


def usable_cpus() -> float:
    """How many CPUs this process may use: its affinity, cut by the cgroup's quota (which may be a fraction)."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cgroup_quota()
    cpus = min(cpus, quota) if quota else cpus
    return int(cpus) if cpus.is_integer() else cpus


def usable_threads() -> int:
    """`usable_cpus` as a number of threads, at least 1."""
    return max(1, math.floor(usable_cpus()))


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cpus = 0 if quota.strip() in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cpus if cpus > 0 else None


def _memory_bytes() -> int:
    total = psutil.virtual_memory().total
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        return total


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def gpus() -> list[dict[str, object]]:
    """The machine's NVIDIA GPUs as its driver lists them; empty where there is none or no driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == 2]
    # Where the GPU shares the machine's memory the driver says "[N/A]".
    return [{"name": name, "driver": driver, "memory_bytes": int(mib) * 2**20 if mib.isdigit() else None} for name, driver, mib in rows]


def host() -> dict[str, object]:
    """The machine: CPU model, usable CPUs, memory in bytes, kernel, GPUs."""
    return {
        "cpu_model": _cpu_model(),
        "cpus": usable_cpus(),
        "memory_bytes": _memory_bytes(),
        "kernel": f"{platform.system()} {platform.release()}",
        "gpus": gpus(),
    }


def software() -> dict[str, object]:
    """Versions of what takes part in a measurement, and the project's commit; None where something is not installed."""
    packages = ("tensorflow", "keras", "grpcio", "locust", "timetoscore")
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": None if (changes := _git("status", "--porcelain")) is None else bool(changes),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
