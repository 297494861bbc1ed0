"""How numbers and names are worded, once for HTML, text and Markdown. Rounding happens here and nowhere else."""

from __future__ import annotations

import math

from report.records import Cell, Run, Server

DASH = "–"
"""Stands for a value that is missing or withheld; 0 is only ever a measured 0."""


def number(value: float | None, digits: int = 4) -> str:
    """`value` with `digits` significant digits, thousands separated; whole digits are never cut. DASH for None."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    if isinstance(value, int):
        return f"{value:,}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


def about(value: float) -> str:
    """A count in prose, to three significant digits: 29,412.7 is "29,400"."""
    scale = 10 ** max(0, math.floor(math.log10(abs(value))) - 2) if value else 1
    return f"{round(value / scale) * scale:,}" if value >= 100 else number(float(value), 3)


def percent(share: float | None, digits: int = 2) -> str:
    """A share of 1 as a percentage; a share just below 1 never rounds up to 100 %."""
    if share is None:
        return DASH
    text = f"{share * 100:.{digits}f}"
    if share < 1 and float(text) == 100:
        text = f"{math.floor(share * 100 * 10**digits) / 10**digits:.{digits}f}"
    return f"{text} %"


def size(count: float | None) -> str:
    """Bytes with a binary unit."""
    if count is None:
        return DASH
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{number(count / factor, 3)} {unit}"
    return f"{count:,.0f} B"


def duration(seconds: float | None) -> str:
    """Seconds as seconds below two minutes, else as minutes or hours too."""
    if seconds is None:
        return DASH
    if seconds < 120:
        return f"{number(float(seconds), 3)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: float, noun: str) -> str:
    """The count and the noun in the number that fits: "1 image", "8 images"."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def joined(words: list[str]) -> str:
    """Words in a row with commas and an "and"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}" if words else ""


def engine(server: Server) -> str:
    """The engine's full name, as every title says it. TensorFlow Serving is named only if the run names it."""
    if server.engine == "embedded":
        return "embedded server (not TensorFlow Serving)"
    if server.engine == "tensorflow-serving":
        return f"TensorFlow Serving {server.version or '(version unknown)'}"
    return "unknown server"


def load_level(cell: Cell) -> str:
    """The load of a cell in a few words: what was in flight, or what was offered."""
    if cell.mode == "open":
        return f"{number(cell.offered_per_s)} requests/s offered"
    return f"concurrency {number(cell.concurrency)}"


def cell_name(cell: Cell) -> str:
    """A cell in a few words."""
    return f"{cell.model}, batch size {cell.batch_size}, {load_level(cell)}"


def load_key(cell: Cell) -> tuple[str, float]:
    """Sorts load levels: closed loop before open loop, then upwards."""
    level = cell.offered_per_s if cell.mode == "open" else cell.concurrency
    return cell.mode, level if level is not None else -1.0


def title(run: Run) -> str:
    """What a run is called: its label, or its id."""
    return run.label or run.id


def cpu_list(cpus: tuple[int, ...] | None) -> str:
    """CPU numbers with runs of neighbours joined: "0–3, 6"."""
    if not cpus:
        return DASH
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)
