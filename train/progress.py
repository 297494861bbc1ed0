"""How training shows that it goes on: a bar on a terminal, a line every 100 steps elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from train.recipe import Progress


@contextlib.contextmanager
def steps(name: str, total: int) -> Iterator[Callable[[Progress], None]]:
    """Yields the function to call with each point of the curve of model `name`, which has `total` steps."""
    if not sys.stdout.isatty():  # rich would also call a pipe a terminal where FORCE_COLOR is set
        yield lambda point: print(
            f"{name} step {point.step}/{total}: training accuracy {point.accuracy:.2f}, loss {point.loss:.3f}, {point.seconds:.1f} s",
            flush=True,
        )
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns) as bar:
        task = bar.add_task(name, total=total, accuracy="–")
        yield lambda point: bar.update(task, completed=point.step, accuracy=f"{point.accuracy:.2f}")
        bar.update(task, completed=total)
