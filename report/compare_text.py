"""A comparison as text for the terminal, Markdown for a pull request, or JSON."""

from __future__ import annotations

import dataclasses
import io
import json

import rich.console
import rich.table
from rich.text import Text

from report import words
from report.compare import CellPair, Comparison, Metric, RunPair

_CLOSING = (
    "Each cell is one window per run. Intervals that don't overlap say which window was lower; they don't prove that a repeat would be."
)
_HEAD = ("cell", "metric", "{base}", "{other}", "{other} − {base}", "{other} ÷ {base}", "verdict")


def as_json(found: Comparison) -> str:
    """The comparison as indented JSON; missing values are null."""
    return json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_markdown(found: Comparison) -> str:
    """The comparison in GitHub's Markdown."""
    lines = [f"- **{letter}**: {_safe(text)}" for letter, text in found.runs]
    for pair in found.pairs:
        lines += ["", f"### {pair.base} against {pair.other}", "", *(f"- {_safe(line)}" for line in difference_lines(pair)), ""]
        lines += [_row([text.format(base=pair.base, other=pair.other) for text in _HEAD]), "|---|---|---:|---:|---:|---:|---|"]
        lines += [_row(row) for cell in pair.cells for row in _rows(cell)]
    return "\n".join([*lines, "", _CLOSING, ""])


def as_text(found: Comparison, width: int) -> str:
    """The comparison for a terminal of `width` columns."""
    target = io.StringIO()
    console = rich.console.Console(file=target, width=width, highlight=False)
    for letter, text in found.runs:
        console.print(Text(f"{letter}: {text}"))
    for pair in found.pairs:
        console.print()
        for line in difference_lines(pair):
            console.print(Text(line))
        table = rich.table.Table(box=None, pad_edge=False, padding=(0, 1))
        for index, text in enumerate(_HEAD):
            table.add_column(text.format(base=pair.base, other=pair.other), justify="right" if 2 <= index <= 5 else "left", overflow="fold")
        for cell in pair.cells:
            for row in _rows(cell):
                table.add_row(*(Text(text) for text in row))
        console.print(table)
    console.print()
    console.print(Text(_CLOSING))
    # Lines padded to the width of the terminal would wrap where the output is pasted.
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def difference_lines(pair: RunPair) -> list[str]:
    """What differs between the two runs, a line each, or one line that says that nothing recorded does."""
    if not pair.differences:
        return [f"{pair.base} and {pair.other}: nothing that the runs record of their conditions differs."]
    lines = [
        f"{name}: {pair.base} {left or 'not recorded'}; {pair.other} {right or 'not recorded'}" for name, left, right in pair.differences
    ]
    return [f"{pair.base} and {pair.other} differ in {words.plural(len(lines), 'condition')}:", *lines]


def _rows(cell: CellPair) -> list[list[str]]:
    if cell.refused:
        return [[cell.cell, "", "", "", "", "", cell.refused]]
    return [[cell.cell if index == 0 else "", *_fields(metric)] for index, metric in enumerate(cell.metrics)]


def _fields(metric: Metric) -> list[str]:
    name = f"{metric.name}, ms" if metric.unit == "ms" else metric.name
    change = words.DASH if metric.difference is None else ("+" if metric.difference > 0 else "") + words.number(metric.difference, 3)
    ratio = words.DASH if metric.ratio is None else f"{metric.ratio:.3f}"
    return [name, words.number(metric.base), words.number(metric.other), change, ratio, metric.verdict or words.DASH]


def _safe(text: str) -> str:
    for mark in ("\\", "|", "<", "*", "_", "`", "["):
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


def _row(fields: list[str]) -> str:
    return "| " + " | ".join(_safe(field) for field in fields) + " |"
