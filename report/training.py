"""Training times measured beside the published ones, and what keeps them from being compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from report import words
from report.records import Run


@dataclass(frozen=True)
class TrainingRow:
    """One model: what this run's record says, as text, and the published seconds."""

    model: str
    measured: str
    device: str
    hardware: str
    steps: str
    batch_size: str
    images_per_s: str
    test_accuracy: str
    published_cpu: str
    published_gpu: str
    published_steps: str
    remark: str


def rows(run: Run) -> list[TrainingRow]:
    """A row for each model that this run holds a record of or that times were published for."""
    published = _published()
    times = {(entry["model"], entry["device"]): float(entry["seconds"]) for entry in published["train_seconds"]}
    names = dict.fromkeys([*run.training, *(model for model, _ in times)])
    return [_row(run, model, times, int(published["recipe"]["steps"])) for model in names]


def note() -> str:
    """Where the published times come from, in the words of the data's own file."""
    return str(_published()["note"])


def _published() -> dict[str, Any]:
    return dict(json.loads((resources.files("train") / "published_times.json").read_text(encoding="utf-8")))


def _row(run: Run, model: str, times: dict[tuple[str, str], float], published_steps: int) -> TrainingRow:
    record = run.training.get(model)
    is_published = any(name == model for name, _ in times)
    steps = record.recipe.steps if record else None
    if record is None:
        remark = "no training record in this run"
    elif not is_published:
        remark = "no time was published for this depth"
    elif steps != published_steps:
        ours = "an unrecorded number of" if steps is None else f"{steps:,}"
        remark = f"not comparable as they are: {ours} steps here, {published_steps:,} there"
    else:
        remark = "the same number of steps; the published hardware is unnamed"
    cpus = record.host.cpus if record else None
    machine = (record.host.gpus[0].name if record.device == "gpu" and record.host.gpus else record.host.cpu_model) if record else None
    return TrainingRow(
        model=model,
        measured=words.duration(record.train_seconds) if record else words.DASH,
        device=record.device.upper() if record and record.device else words.DASH,
        hardware=(machine or "not recorded") + (f", {cpus:g} CPUs" if cpus is not None else "") if record else words.DASH,
        steps=words.number(steps),
        batch_size=words.number(record.recipe.batch_size) if record else words.DASH,
        images_per_s=words.number(record.images_per_s) if record else words.DASH,
        test_accuracy=words.percent(record.test_accuracy) if record else words.DASH,
        published_cpu=words.duration(times.get((model, "cpu"))),
        published_gpu=words.duration(times.get((model, "gpu"))),
        published_steps=words.number(published_steps) if is_published else words.DASH,
        remark=remark,
    )
