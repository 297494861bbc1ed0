"""How a plan shows that it goes on: a bar over all cells on a terminal, and a line for each finished cell everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.cells import Cell, Settings
from loadtest.collect import line

Ticked = Callable[[Cell, float], None]
Finished = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def showing(cells: list[Cell], settings: Settings) -> Iterator[tuple[Ticked, Finished]]:
    """Yields the functions to call with the seconds a cell has run, and with each finished cell's entry."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield (lambda _cell, _seconds: None), (lambda entry: print(line(entry), flush=True))
        return
    each = settings.warmup_s + settings.window_s
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("connecting", total=each * len(cells))
        place = {cell.id: number for number, cell in enumerate(cells)}

        def ticked(cell: Cell, seconds: float) -> None:
            number = place[cell.id]
            what = f"cell {number + 1}/{len(cells)} {cell.model} batch {cell.batch_size} concurrency {cell.concurrency}"
            bar.update(
                task, completed=number * each + seconds, description=f"{what}, {'warm-up' if seconds < settings.warmup_s else 'window'}"
            )

        yield ticked, lambda entry: bar.console.print(line(entry))
