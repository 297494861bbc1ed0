"""Runs a plan: cell after cell on one server, each connected, warmed up, measured and drained by itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from locust.env import Environment

from loadtest import manifest, payloads
from loadtest.answers import TOLERANCE, Answers, ask_all
from loadtest.cells import Cell, Settings
from loadtest.collect import Collector, finish_run
from loadtest.errors import LoadError
from loadtest.process import LoadProcess
from loadtest.recorder import Recorder
from loadtest.runs import RunWriter
from loadtest.target import Target, inspect
from loadtest.user import ScoringUser, Work
from serving.endpoint import Endpoint
from train.mnist import Mnist

_CONNECT_WITHIN_S = 60.0
_TICK_S = 0.1

Ticked = Callable[[Cell, float], None]
"""Called now and then with the cell that runs and the seconds since it began."""


class PlanUser(ScoringUser):
    """A user of a plan's server."""


@dataclass
class Outcome:
    """What a plan left: the entries of its cells, and why it is not complete, if it isn't."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    records: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    complete: bool = False


def run_plan(
    cells: list[Cell],
    settings: Settings,
    endpoint_or_host: Endpoint | str,
    data: Mnist,
    models: Path,
    writer: RunWriter,
    facts: manifest.Environment,
    ready_within_s: float,
    ticked: Ticked,
    finished: Callable[[dict[str, Any]], None],
) -> tuple[Path, Outcome]:
    """Measures every cell and writes the run folder, also when it is interrupted or a server fails in between.

    Models are described and their answers checked before anything is timed. Raises LoadError if the server can't be
    measured at all; then nothing was added to `writer`.
    """
    outcome = Outcome()
    names = dict.fromkeys(cell.model for cell in cells)
    targets = {name: inspect(_host(endpoint_or_host), name, settings.signature, ready_within_s) for name in names}
    endpoint = endpoint_or_host if isinstance(endpoint_or_host, Endpoint) else next(iter(targets.values())).endpoint
    reasons = {name: _check_answers(target, data, models, outcome) for name, target in targets.items()}
    try:
        for cell in cells:
            entry = _measure(cell, settings, targets[cell.model], data, writer, _expected(outcome, cell.model), ticked)
            entry["reasons"] += reasons[cell.model]
            entry["valid"] = not entry["reasons"]
            outcome.entries.append(entry)
            finished(entry)
        outcome.complete = True
    except KeyboardInterrupt:
        outcome.notes.append(f"interrupted: {len(outcome.entries)} of {len(cells)} cells were measured")
    except LoadError as problem:
        outcome.notes.append(f"stopped after {len(outcome.entries)} of {len(cells)} cells: {problem}")
    folder = finish_run(
        writer,
        facts,
        endpoint,
        settings,
        outcome.entries,
        outcome.records,
        1,
        outcome.complete,
        outcome.notes,
        list(os.environ),
    )
    return folder, outcome


def _host(endpoint_or_host: Endpoint | str) -> str:
    return endpoint_or_host.address if isinstance(endpoint_or_host, Endpoint) else endpoint_or_host


def _expected(outcome: Outcome, model: str) -> float | None:
    record = outcome.records.get(model)
    return record["test_accuracy"] if record else None


def _check_answers(target: Target, data: Mnist, models: Path, outcome: Outcome) -> list[str]:
    """Notes what all test images give through the server; returns why the model's cells are not valid, if so."""
    answers = ask_all(target, data)
    record = manifest.training_record(models, target)
    what = f"{target.model} version {answers.version} labels {answers.right:,} of {answers.images:,} test images right through the server"
    if record is None:
        outcome.notes.append(f"{what}; its training record is not at hand")
        return []
    outcome.records[target.model] = record
    return _compared(answers, record["test_accuracy"], what, outcome)


def _compared(answers: Answers, recorded: float, what: str, outcome: Outcome) -> list[str]:
    difference = answers.accuracy - recorded
    if answers.right == round(recorded * answers.images):
        outcome.notes.append(f"{what}, as its training record says ({recorded:.2%})")
    else:
        outcome.notes.append(f"{what}, its training record says {recorded:.2%}: {difference * 100:+.2f} points")
    return (
        [f"through the server {answers.accuracy:.2%} are right, the training record says {recorded:.2%}"]
        if abs(difference) > TOLERANCE
        else []
    )


def _measure(
    cell: Cell, settings: Settings, target: Target, data: Mnist, writer: RunWriter, expected_accuracy: float | None, ticked: Ticked
) -> dict[str, Any]:
    requests = payloads.build(target, data, cell.batch_size, settings.seed)
    recorder = Recorder(cell.batch_size, cell.id)
    collector = Collector(writer, cell, settings, target, len(requests[0].request))
    environment = Environment(user_classes=[PlanUser], host=target.endpoint.address, stop_timeout=0)
    runner = environment.create_local_runner()

    def refuse(problem: LoadError) -> None:
        raise problem

    process = LoadProcess(environment, lambda: Work(cell, settings, target, requests, recorder), collector.rows, collector.part, refuse)
    runner.start(cell.concurrency, spawn_rate=cell.concurrency)
    try:
        _wait(process, settings, cell, ticked)
    finally:
        runner.quit()
    return collector.entry(expected_accuracy)


def _wait(process: LoadProcess, settings: Settings, cell: Cell, ticked: Ticked) -> None:
    elapsed = 0.0
    until_open = settings.warmup_s + _CONNECT_WITHIN_S
    while not process.window_opened.wait(_TICK_S):
        elapsed += _TICK_S
        if elapsed > until_open:
            return  # the cell's entry says that nothing was measured
        ticked(cell, min(elapsed, settings.warmup_s))
    for tick in range(max(1, round(settings.window_s / _TICK_S))):
        gevent.sleep(_TICK_S if settings.window_s > _TICK_S else settings.window_s)
        ticked(cell, settings.warmup_s + tick * _TICK_S)
