"""The Locust user: closed loop, one request in flight, bytes made beforehand, every time kept in nanoseconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from typing import Any

import gevent
from locust import User, constant, task
from locust.exception import StopUser

from loadtest.cells import Cell, Settings
from loadtest.channels import CHANNELS, OK, Channel, code_name
from loadtest.errors import LoadError
from loadtest.payloads import Payload, UnusableReplyError, check
from loadtest.recorder import Recorder
from loadtest.samples import UNUSABLE
from loadtest.target import Target

_CONNECT_WITHIN_S = 30.0
_STRIDE = 7919  # a prime, so that users begin far apart in the requests


@dataclass
class Work:
    """What the users of one process share for one cell."""

    cell: Cell
    settings: Settings
    target: Target
    payloads: list[Payload]
    recorder: Recorder
    closing: bool = False


def set_work(environment: Any, work: Work | None) -> None:
    """Hands the users of a Locust environment their work."""
    environment.timetoscore_work = work


def work_of(environment: Any) -> Work | None:
    """The work of a Locust environment, None before it has any."""
    work: Work | None = getattr(environment, "timetoscore_work", None)
    return work


class ScoringUser(User):
    """Scores test images as fast as replies come: no think time."""

    abstract = True
    wait_time = constant(0)
    work: Work | None
    channel: Channel | None
    _numbers = count()

    def on_start(self) -> None:
        """Connects, so that no measured request opens a connection. A user that can't has nothing to do."""
        self.work, self.channel = work_of(self.environment), None
        if self.work is None:
            return
        self.position = next(self._numbers) * _STRIDE
        channel = CHANNELS[self.work.settings.channel](self.work.target.endpoint.address)
        try:
            channel.connect(_CONNECT_WITHIN_S)
        except LoadError as problem:
            self.work.recorder.problem(str(problem))
            channel.close()
            return
        self.channel = channel
        self.work.recorder.users += 1

    def on_stop(self) -> None:
        """Disconnects."""
        if self.channel is not None:
            self.channel.close()

    @task
    def score(self) -> None:
        """Sends the next request, waits for its outcome, checks the answer after the clock has stopped."""
        work, channel = self.work, self.channel
        if work is None or channel is None or work.closing:
            raise StopUser
        recorder = work.recorder
        payload = work.payloads[self.position % len(work.payloads)]
        self.position += 1
        recorder.in_flight += 1
        sent = time.monotonic_ns()
        try:
            reply = channel.predict(payload.request, work.settings.deadline_s)
            done = time.monotonic_ns()
        except gevent.GreenletExit:
            recorder.abandon(sent)
            raise
        finally:
            recorder.in_flight -= 1
        status, correct, version, problem = reply.code, 0, 0, None
        if status == OK:
            try:
                correct, version = check(payload, reply.payload, work.target.output_name)
            except UnusableReplyError as unusable:
                status, problem = UNUSABLE, str(unusable)
        else:
            problem = f"{code_name(status)}: {reply.text}"
        recorder.add(sent, done, status, correct, version)
        if problem is not None:
            recorder.problem(problem)
        # Locust's own statistics are fed for its web page and console; they round to whole milliseconds.
        self.environment.events.request.fire(
            request_type="gRPC",
            name=f"{work.cell.model} batch {work.cell.batch_size}",
            response_time=(done - sent) / 1e6,
            response_length=len(reply.payload),
            exception=None if problem is None else LoadError(problem),
            context={},
        )
