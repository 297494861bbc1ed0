"""The benchmark under the `locust` command: one process, or a master with workers on one machine or many.

A worker sends its samples to the master every few seconds and its share at the end; the master waits for the shares of
all, so that none is lost quietly.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gevent
import numpy as np
from locust.runners import MasterRunner, WorkerRunner

from loadtest import manifest, payloads
from loadtest.cells import Cell, Settings
from loadtest.channels import use_gevent
from loadtest.collect import Collector, failed, finish_run, line
from loadtest.errors import LoadError
from loadtest.process import LoadProcess
from loadtest.recorder import Part, Recorder
from loadtest.runs import RunWriter
from loadtest.samples import DTYPE, Rows
from loadtest.target import Target, address, inspect
from loadtest.user import Work
from train import mnist
from train.errors import TrainError

_ROWS, _PART, _CLOSE = "timetoscore_rows", "timetoscore_part", "timetoscore_close"


class Distributed:
    """Wires a Locust environment: the users' side where there are users, the collecting side where there is no master above."""

    def __init__(self, environment: Any, default_host: str) -> None:
        """Checks what can be checked before a server is asked. Raises LoadError."""
        self.environment, self.runner, self.default_host = environment, environment.runner, default_host
        self.is_master, self.is_worker = isinstance(self.runner, MasterRunner), isinstance(self.runner, WorkerRunner)
        self.collector: Collector | None = None
        self.expected: list[int] = []
        self.refusal: str | None = None
        self.facts: manifest.Environment | None = None
        if not self.is_worker:
            self.settings()
            address(self.host)
            RunWriter(self._path("out"), self._option("label")).discard_unused()
            self.data = self._images()
            self.facts = manifest.Environment.gather()
        else:
            self.data = self._images()
        use_gevent()
        if not self.is_worker and self.environment.web_ui is None:
            # Before Locust's clock starts: a server that is still loading costs no part of the run.
            payloads.build(self._inspect(), self.data, self._option("batch_size"), 0)

    def _option(self, name: str) -> Any:
        return getattr(self.environment.parsed_options, name)

    def _path(self, name: str) -> Path:
        return Path(self._option(name))

    @property
    def host(self) -> str:
        """The server's address as the user gave it."""
        return str(self.environment.host or self.default_host)

    def _images(self) -> mnist.Mnist:
        try:
            return mnist.cached(self._path("artifacts") / "data")
        except TrainError as problem:
            raise LoadError(str(problem)) from problem

    def settings(self) -> Settings:
        """The settings that the options say now; the web page may change them between tests."""
        return Settings(
            signature=self._option("signature"),
            warmup_s=self._option("warmup"),
            deadline_s=self._option("deadline"),
            seed=self._option("seed"),
        )

    def attach(self) -> None:
        """Adds the listeners, in an order that lets samples arrive before they are summed up."""
        events = self.environment.events
        if self.is_worker:
            LoadProcess(self.environment, self._prepare, self._send_rows, self._send_part, self._refuse)
            self.runner.register_message(_CLOSE, lambda environment, **_: environment.runner.stop(), concurrent=True)
            return
        events.test_start.add_listener(self._begin)
        if self.is_master:
            self.runner.register_message(_ROWS, self._receive_rows)
            self.runner.register_message(_PART, self._receive_part)
        else:
            LoadProcess(self.environment, self._prepare, self._keep_rows, self._keep_part, self._refuse)
        events.test_stop.add_listener(self._finish)

    # The users' side

    def _prepare(self) -> Work:
        if self.is_worker:
            self.refusal = None  # that of an earlier test; without a master `_begin` has seen to it
        if self.refusal is not None:
            raise LoadError(self.refusal)
        settings = self.settings()
        target = self._inspect()
        cell = Cell(0, target.model, self._option("batch_size"), 0)
        requests = payloads.build(target, self.data, cell.batch_size, settings.seed)
        return Work(cell, settings, target, requests, Recorder(cell.batch_size))

    def _inspect(self) -> Target:
        return inspect(self.host, self._option("model"), self._option("signature"), self._option("ready_timeout"))

    def _refuse(self, problem: LoadError) -> None:
        if self.refusal is not None:
            return
        self.refusal = str(problem)
        print(f"score: {problem}", file=sys.stderr, flush=True)
        if self.is_worker:
            return
        self.environment.process_exit_code = 2
        if self.environment.web_ui is None:
            gevent.spawn(self.runner.quit)
        else:
            gevent.spawn(self.runner.stop)

    def _send_rows(self, rows: Rows) -> None:
        if len(rows):
            self.runner.send_message(_ROWS, rows.tobytes())

    def _send_part(self, part: Part) -> None:
        self.runner.send_message(_PART, part.to_message())

    # The collecting side

    def _begin(self, **_: Any) -> None:
        self.refusal, self.collector = None, None
        try:
            settings = self.settings()
            target = self._inspect()
            cell = Cell(0, target.model, self._option("batch_size"), self.runner.target_user_count or 1)
            request_bytes = len(payloads.build(target, self.data, cell.batch_size, settings.seed)[0].request)
            self.collector = Collector(RunWriter(self._path("out"), self._option("label")), cell, settings, target, request_bytes)
        except LoadError as problem:
            self._refuse(problem)
            return
        if self.is_master:
            self.expected = [self.runner.get_worker_index(client.id) for client in self.runner.clients.ready]

    def _keep_rows(self, rows: Rows) -> None:
        if self.collector is not None:
            self.collector.rows(rows)

    def _keep_part(self, part: Part) -> None:
        if self.collector is not None:
            self.collector.part(part)

    def _receive_rows(self, msg: Any, **_: Any) -> None:
        if self.collector is not None:
            self.collector.rows(np.frombuffer(msg.data, DTYPE).copy(), self.runner.get_worker_index(msg.node_id))

    def _receive_part(self, msg: Any, **_: Any) -> None:
        if self.collector is not None:
            self.collector.part(Part.from_message(msg.data, self.runner.get_worker_index(msg.node_id)))

    def _is_gone(self, worker: int) -> bool:
        alive = [*self.runner.clients.ready, *self.runner.clients.running, *self.runner.clients.spawning]
        return worker not in {self.runner.get_worker_index(client.id) for client in alive}

    def _finish(self, **_: Any) -> None:
        collector = self.collector
        if collector is None:
            return
        if self.is_master:
            # With a time limit Locust tells workers to quit and gives them half a second; they are told to finish first.
            self.runner.send_message(_CLOSE)
            collector.wait(self.expected, self._is_gone)
        self.collector = None
        try:
            self._leave_run(collector)
        except LoadError as problem:
            print(f"score: {problem}", file=sys.stderr, flush=True)
            self.environment.process_exit_code = 2

    def _leave_run(self, collector: Collector) -> None:
        record = manifest.training_record(self._path("artifacts") / "models", collector.target)
        entry = collector.entry(record["test_accuracy"] if record else None)
        assert self.facts is not None  # noqa: S101 - for the type checker; there is no collector without them
        folder = finish_run(
            collector.writer,
            self.facts,
            collector.target.endpoint,
            collector.settings,
            [entry],
            {collector.target.model: record} if record else {},
            len(self.expected) if self.is_master else 1,
            not collector.lost,
            [] if record else [f"no training record of {collector.target.model} version {collector.target.version} is at hand"],
            list(os.environ),
        )
        if failed(entry) or collector.lost:
            self.environment.process_exit_code = 1
        print(f"score: {line(entry)}\nscore: run folder {folder}; 'python -m report {folder}' makes its report", flush=True)
