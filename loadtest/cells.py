"""What is to be measured: a cell, a plan of cells, and the settings that all cells of a run share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.errors import LoadError


@dataclass(frozen=True)
class Cell:
    """One row of results: a model, a batch size (images in one request) and a load level, closed loop."""

    id: int
    model: str
    batch_size: int
    concurrency: int


@dataclass(frozen=True)
class Settings:
    """What holds for every cell of a run.

    `warmup_s` is sent and discarded before each window of `window_s`; a request that has no reply after `deadline_s`
    fails with DEADLINE_EXCEEDED; `seed` decides the order of the test images.
    """

    signature: str = "serving_default"
    warmup_s: float = 2.0
    window_s: float = 10.0
    deadline_s: float = 10.0
    seed: int = 0
    channel: str = "grpcio"

    def __post_init__(self) -> None:
        """Raises LoadError for times that can't be measured with."""
        if self.warmup_s < 0 or self.window_s <= 0 or self.deadline_s <= 0:
            raise LoadError("--warmup must not be negative, --window and --deadline must be more than 0 seconds")


def plan(models: Sequence[str], batch_sizes: Sequence[int], concurrencies: Sequence[int]) -> list[Cell]:
    """Every model at every batch size at every concurrency, numbered from 0. Raises LoadError for nothing or numbers below 1."""
    if not models or not batch_sizes or not concurrencies:
        raise LoadError("a plan needs at least one model, one batch size and one concurrency")
    if min(*batch_sizes, *concurrencies, 1) < 1:
        raise LoadError("batch sizes and concurrencies start at 1")
    return [Cell(number, *choice) for number, choice in enumerate(itertools.product(models, batch_sizes, concurrencies))]
