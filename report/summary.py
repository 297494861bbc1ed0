"""The cells as a flat table: `summary.csv`, where the run hasn't got one, and the text table of the terminal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import rich.table
from rich.text import Text

from loadtest.flat import write_csv
from report import words
from report.columns import Shown, columns
from report.records import Run


def write_summary_csv(path: Path, run: Run) -> None:
    """Writes the cells to a new file `path`, whole or not at all, in the columns of `loadtest.flat`. Raises OSError."""
    cells = run.raw.get("cells") or []
    assert isinstance(cells, list)  # noqa: S101 - for the type checker; `run.parse` has seen to it
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        write_csv(temporary, cells)
        # A link, unlike a rename, fails where the name is taken.
        path.hardlink_to(temporary)


def text_table(run: Run) -> rich.table.Table:
    """The cells as a table for the terminal: counts, rates, response times; cells that aren't valid are dimmed and say why."""
    table = rich.table.Table(
        title=f"{words.title(run)}: {words.engine(run.server)}", title_justify="left", box=None, pad_edge=False, padding=(0, 1)
    )
    chosen = [column for column in columns(run) if column.title in _ON_TERMINAL]
    for column in chosen:
        table.add_column(_ON_TERMINAL[column.title], justify="right" if column.numeric else "left", no_wrap=True)
    table.add_column("valid", overflow="fold")
    for cell in run.cells:
        verdict = "yes" if cell.valid else f"no: {'; '.join(cell.reasons) or 'no reason given'}"
        shown: list[Shown] = [column.show(cell) for column in chosen]
        # Text, not str: square brackets in a name are no markup.
        table.add_row(*(Text(field.text) for field in shown), Text(verdict), style=None if cell.valid else "dim")
    return table


_ON_TERMINAL = {
    "model": "model",
    "batch size": "batch",
    "loop": "loop",
    "concurrency": "conc.",
    "offered /s": "offered/s",
    "ok": "ok",
    "failed": "failed",
    "abandoned": "aband.",
    "requests/s": "requests/s",
    "images/s": "images/s",
    "p50 ms": "p50 ms",
    "p99 ms": "p99 ms",
    "accuracy": "accuracy",
}
