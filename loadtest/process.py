"""One process's part in a Locust test: users get their work, the window opens and closes, running requests are drained.

Hung onto Locust's events, so that it is the same in a single process, in a worker, under the web page and in a plan.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event

from loadtest.errors import LoadError
from loadtest.recorder import Part, Recorder
from loadtest.samples import Rows
from loadtest.user import Work, set_work, work_of

log = logging.getLogger(__name__)

_DRAIN_MARGIN_S = 1.0
_TICK_S = 0.01
FLUSH_EVERY_S = 3.0


class LoadProcess:
    """Runs the users' side of tests in one process, one test after the other.

    `prepare()` makes the work of the test that starts; if it raises LoadError, `refuse(problem)` is called and no user gets
    work. `deliver(rows)` gets samples now and then, `closed(part)` the share of the process, once, after the drain.
    """

    def __init__(
        self,
        environment: Any,
        prepare: Callable[[], Work],
        deliver: Callable[[Rows], None],
        closed: Callable[[Part], None],
        refuse: Callable[[LoadError], None],
    ) -> None:
        self.environment, self._prepare, self._deliver, self._closed, self._refuse = environment, prepare, deliver, closed, refuse
        self._flusher: Any = None
        self._opener: Any = None
        self.window_opened = gevent.event.Event()
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)

    def _on_test_start(self, **_: Any) -> None:
        set_work(self.environment, None)
        self.window_opened.clear()
        try:
            work = self._prepare()
        except LoadError as problem:
            self._refuse(problem)
            return
        # The requests are thousands of objects that live as long as the test: not for the collector to walk over.
        gc.collect()
        gc.freeze()
        set_work(self.environment, work)
        self._flusher = gevent.spawn(self._flush_now_and_then, work.recorder)

    def _on_spawning_complete(self, **_: Any) -> None:
        work = work_of(self.environment)
        if work is not None and self._opener is None:
            self._opener = gevent.spawn_later(work.settings.warmup_s, self._open, work.recorder)

    def _open(self, recorder: Recorder) -> None:
        recorder.open_window()
        self.window_opened.set()

    def _on_test_stopping(self, **_: Any) -> None:
        work = work_of(self.environment)
        if work is None:
            return
        work.recorder.close_window()
        work.closing = True
        # Locust's stop timeout waits for users, this for requests: up to their deadline, which ends them all.
        with gevent.Timeout(work.settings.deadline_s + _DRAIN_MARGIN_S, False):  # type: ignore[arg-type]  # False: it ends the block without a word
            while work.recorder.in_flight:
                gevent.sleep(_TICK_S)

    def _on_test_stop(self, **_: Any) -> None:
        work = work_of(self.environment)
        for greenlet in (self._flusher, self._opener):
            if greenlet is not None:
                greenlet.kill()
        self._flusher = self._opener = None
        if work is None:
            return
        self._deliver(work.recorder.take())
        self._closed(work.recorder.part(0))
        set_work(self.environment, None)
        gc.unfreeze()

    def _flush_now_and_then(self, recorder: Recorder) -> None:
        while True:
            gevent.sleep(FLUSH_EVERY_S)
            self._deliver(recorder.take())
