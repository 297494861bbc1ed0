from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.conftest import program
from train import environment


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_is_read_from_either_form_of_cgroups(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert environment._cgroup_quota(tmp_path) == quota


@given(text=st.text(st.sampled_from("0123456789-max \n"), max_size=12))
def test_any_text_in_place_of_a_quota_is_a_positive_number_or_none(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cpu.max").write_text(text)
        quota = environment._cgroup_quota(Path(folder))
    assert quota is None or quota > 0


def test_usable_cpus_are_no_more_than_the_affinity_allows() -> None:
    assert 0 < environment.usable_cpus() <= len(os.sched_getaffinity(0))
    assert environment.usable_threads() >= 1


@pytest.mark.parametrize(
    ("said", "gpus"),
    [
        ("NVIDIA H200, 570.86, 143771", [{"name": "NVIDIA H200", "driver": "570.86", "memory_bytes": 143771 * 2**20}]),
        (
            "A, 1, 2\nB, 1, 3",
            [{"name": "A", "driver": "1", "memory_bytes": 2 * 2**20}, {"name": "B", "driver": "1", "memory_bytes": 3 * 2**20}],
        ),
        ("NVIDIA GB10, 580.95, [N/A]", [{"name": "NVIDIA GB10", "driver": "580.95", "memory_bytes": None}]),
        ("No devices were found", []),
        ("", []),
    ],
)
def test_gpus_are_those_the_driver_lists(said: str, gpus: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", f"cat <<'EOF'\n{said}\nEOF")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.gpus() == gpus


def test_without_a_driver_there_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.gpus() == []
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert environment.gpus() == []


def test_without_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    software = environment.software()
    assert (software["git_commit"], software["git_dirty"]) == (None, None)
