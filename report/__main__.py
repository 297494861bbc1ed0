"""`python -m report`: writes the report of a run, or compares runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from report import compare_text, html, run, summary
from report.compare import compare
from report.errors import ReportError
from train.files import replacing

LATEST = Path("artifacts/runs/latest")
_PLAIN_WIDTH = 160
"""Columns where the output is no terminal: wide enough that no row breaks."""


def report_arguments() -> argparse.ArgumentParser:
    """The command line that writes a report."""
    parser = argparse.ArgumentParser(
        prog="python -m report",
        description="Writes report.html (and summary.csv where it is missing) into a run folder and prints its cells.",
        epilog="'python -m report compare A B [C ...]' sets runs beside each other; see 'python -m report compare --help'. "
        "A run folder that is named compare is given as ./compare.",
    )
    parser.add_argument("run", nargs="?", type=Path, default=LATEST, metavar="RUN", help="the run folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace a report.html that has other content")
    return parser


def compare_arguments() -> argparse.ArgumentParser:
    """The command line that compares runs."""
    parser = argparse.ArgumentParser(
        prog="python -m report compare",
        description="Sets the same cells of runs beside each other: each later run against the first. What differs besides comes first.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="two or more run folders")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="how to print it (default: %(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 2 for what the user can put right."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["compare"]:
            return compare_runs(compare_arguments().parse_args(words[1:]))
        return write_report(report_arguments().parse_args(words))
    except ReportError as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does; Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def write_report(options: argparse.Namespace) -> int:
    """Writes the report and the summary of one run and prints where, and the cells."""
    found = run.load(options.run)
    page = html.render(found, run.load_samples(found.folder))
    target = found.folder / "report.html"
    try:
        _write(target, page, options.force)
        table = found.folder / "summary.csv"
        if not table.exists():
            summary.write_summary_csv(table, found)
    except OSError as problem:
        raise ReportError(
            f"can't write to {found.folder}: {problem.strerror or problem}; free some space or copy the run elsewhere"
        ) from problem
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(summary.text_table(found))
    if not found.complete:
        print("The run is incomplete: it was cut short.")
    print(f"report: {target}")
    return 0


def compare_runs(options: argparse.Namespace) -> int:
    """Prints the comparison of the runs."""
    found = compare(*(run.load(folder) for folder in options.runs))
    if options.format == "json":
        text = compare_text.as_json(found)
    elif options.format == "markdown":
        text = compare_text.as_markdown(found)
    else:
        text = compare_text.as_text(found, Console().width if sys.stdout.isatty() else _PLAIN_WIDTH)
    sys.stdout.write(text)
    return 0


def _write(target: Path, page: str, force: bool) -> None:
    if target.exists() and not force:
        if target.read_text(encoding="utf-8", errors="replace") == page:
            return
        raise ReportError(f"{target} exists with other content: --force replaces it, or move it away")
    with replacing(target) as temporary:
        temporary.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
