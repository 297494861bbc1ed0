"""Interrupts that arrive: raised where the main greenlet waits, not in whichever greenlet happens to run."""

from __future__ import annotations

import signal

import gevent


def interrupt_main_greenlet(*numbers: signal.Signals) -> None:
    """Makes the signals raise KeyboardInterrupt in the calling greenlet, which must be the main one, where it waits.

    Python raises it in whatever runs when the signal comes: a user, Locust's own loops or a callback of grpc may take it for
    theirs or drop it, and the run goes on.
    """
    main = gevent.getcurrent()
    for number in numbers:
        gevent.signal_handler(number, lambda: gevent.kill(main, KeyboardInterrupt))
