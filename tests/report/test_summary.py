"""The flat table of cells, as CSV and on the terminal."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from report import run, summary
from report.words import about, cpu_list, duration, number, percent
from tests.report import recorded


def printed(folder: Path) -> str:
    target = io.StringIO()
    Console(file=target, width=160, highlight=False).print(summary.text_table(run.load(folder)))
    return target.getvalue()


def test_the_csv_has_a_row_for_each_cell_and_none_of_totals(bench: Path, tmp_path: Path) -> None:
    found = run.load(bench)
    summary.write_summary_csv(tmp_path / "summary.csv", found)
    with (tmp_path / "summary.csv").open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    assert [int(row["id"]) for row in rows] == [cell.id for cell in found.cells]
    assert sum(int(row["ok"]) for row in rows) == sum(cell.ok for cell in found.cells)
    assert [row["response_p99_ms"] for row in rows] == ["" if c.response_ms.p99 is None else repr(c.response_ms.p99) for c in found.cells]


def test_an_existing_csv_is_left_as_it_is(bench: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(OSError):
        summary.write_summary_csv(tmp_path / "summary.csv", run.load(bench))
    assert [path.name for path in tmp_path.iterdir()] == ["summary.csv"]
    assert (tmp_path / "summary.csv").read_text(encoding="utf-8") == "mine"


def test_the_terminal_table_names_the_engine_the_failures_and_why_a_cell_is_not_valid(bench: Path) -> None:
    text = printed(bench)
    assert text.startswith("bench: embedded server (not TensorFlow Serving)")
    assert "failed" in text.splitlines()[1]
    assert "no: client-bound" in text
    assert len(text.splitlines()) >= 18


def test_square_brackets_in_a_name_are_no_markup(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 30, model="[red]cnn2[/red]", valid=False, reasons=["[bold]x"])
    assert "[red]cnn2[/red]" in printed(folder)
    assert "no: [bold]x" in printed(folder)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.0, "0"),
        (0.598, "0.5980"),
        (596.0, "596.0"),
        (12345.6, "12,346"),
        (7, "7"),
        (1234567, "1,234,567"),
        (-1.5, "-1.500"),
    ],
)
def test_numbers_keep_four_significant_digits_and_missing_is_a_dash(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.99999, "99.99 %"), (1.0, "100.00 %"), (0.0, "0.00 %"), (None, "–"), (0.9633, "96.33 %")])
def test_less_than_all_is_never_written_as_a_hundred_per_cent(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(23.77, "23.8 s"), (119.9, "120 s"), (2080, "34 min 40 s"), (7991, "2 h 13 min"), (None, "–")]
)
def test_durations_are_told_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(39627.4, "39,600"), (999.6, "1,000"), (42.123, "42.1")])
def test_counts_in_prose_have_three_digits(value: float, text: str) -> None:
    assert about(value) == text


@pytest.mark.parametrize(("cpus", "text"), [((0, 1, 2, 6), "0–2, 6"), ((3,), "3"), ((), "–"), (None, "–")])
def test_cpus_are_listed_as_spans(cpus: tuple[int, ...] | None, text: str) -> None:
    assert cpu_list(cpus) == text
