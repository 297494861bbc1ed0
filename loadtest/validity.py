"""Whether a cell's numbers can be used, and in which words they can't. The one place that decides it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.stats import QUANTILES, samples_needed

CLIENT_CPU_LIMIT = 0.85
FAILED_SHARE_LIMIT = 0.01
BUSY_SHARE_LIMIT = 0.8
ACCURACY_SLACK = 0.02
_DEVIATIONS = 4


def reasons(
    cell: Mapping[str, Any], images: int, expected_accuracy: float | None, versions: Mapping[int, int], users_started: int
) -> list[str]:
    """Why the cell of run.json must not be used; empty if it may. `images` is how many were answered in the window.

    A client whose process is busy for more than 85 % of the window measures itself. Requests in flight follow from
    rate × latency (Little's law); far fewer than the users means that something else than the server held them up.
    Accuracy may fall below the training record's by two points or four standard deviations of the sample.
    """
    found = []
    if cell["window_s"] is None:
        return ["the run ended within the warm-up: nothing was measured"]
    if users_started < cell["concurrency"]:
        found.append(f"only {users_started} of {cell['concurrency']} users could connect")
    if not cell["ok"]:
        found.append("no request succeeded" if cell["sent"] else "no request was sent inside the window")
        return found
    if len(versions) > 1:
        found.append(
            "replies came from several versions: " + ", ".join(f"{number} of version {v}" for v, number in sorted(versions.items()))
        )
    if cell["abandoned"]:
        found.append(f"{cell['abandoned']} requests were still running when the drain ended: the slowest are not in the latencies")
    if cell["failed"] > FAILED_SHARE_LIMIT * cell["sent"]:
        found.append(f"{cell['failed']} of {cell['sent']} requests failed: the rest is no fair sample")
    if cell["client_cpu"] is not None and cell["client_cpu"] > CLIENT_CPU_LIMIT:
        found.append(f"client-bound: a load process was busy for {cell['client_cpu']:.0%} of the window")
    in_flight = cell["requests_per_s"] * cell["service_ms"]["mean"] / 1e3
    if in_flight < BUSY_SHARE_LIMIT * cell["concurrency"]:
        found.append(f"only {in_flight:.1f} of {cell['concurrency']} requests were in flight on average: the client held them up")
    if expected_accuracy is not None:
        slack = max(ACCURACY_SLACK, _DEVIATIONS * math.sqrt(expected_accuracy * (1 - expected_accuracy) / images))
        if cell["accuracy"] < expected_accuracy - slack:
            found.append(f"{cell['accuracy']:.1%} of the answers were right, the training record says {expected_accuracy:.1%}")
    return found


def notes(cell: Mapping[str, Any], problems: Sequence[Mapping[str, int]]) -> list[str]:
    """Remarks on a cell's numbers: percentiles withheld for want of samples, and what failures said."""
    found = []
    withheld = [
        f"{name.replace('p999', 'p99.9')} ({samples_needed(q):,} needed)" for name, q in QUANTILES.items() if cell["ok"] < samples_needed(q)
    ]
    if withheld:
        found.append(f"withheld, {cell['ok']:,} samples are too few: " + ", ".join(withheld))
    texts: dict[str, int] = {}
    for each in problems:
        for text, number in each.items():
            texts[text] = texts.get(text, 0) + number
    found += [f"{number} × {text}" for text, number in sorted(texts.items(), key=lambda item: -item[1])]
    return found
