"""The report in a real Chromium: it loads by itself, draws, sorts, and fits dark, narrow and printed pages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report import recorded
from tests.report.conftest import page_of

pytestmark = pytest.mark.slow  # a browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, page: str) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@contextlib.contextmanager
def opened(browser: Any, file: Path, **options: Any) -> Iterator[Any]:
    """The page, drawn; after the block it must have asked for nothing but itself and have said nothing on the console."""
    tab = browser.new_page(**options)
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: None if request.url.startswith(("data:", "blob:")) else asked.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready=yes]", state="attached")
    yield tab
    tab.close()
    assert said == []
    assert asked == [file.as_uri()]


def column(tab: Any, title: str) -> list[str]:
    """The texts of a column of the table of cells, as sorted now."""
    return list(
        tab.evaluate(
            """title => { const table = document.querySelector("table.cells");
            const place = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent.trim() === title);
            const fields = [...table.tBodies[0].rows].map(row => row.cells[place]);
            return fields.map(field => (field.querySelector(".value") ?? field).textContent.trim()); }""",
            title,
        )
    )


def test_every_plot_is_drawn(browser: Any, file: Path) -> None:
    with opened(browser, file) as tab:
        plots = tab.locator("[data-plot]")
        assert plots.count() == 7
        for index in range(plots.count()):
            assert plots.nth(index).locator("path.js-line, .points path").count() > 0


def test_headings_sort_the_cells_both_ways_with_missing_values_last(browser: Any, file: Path) -> None:
    with opened(browser, file) as tab:
        heading = tab.locator("table.cells th", has=tab.get_by_role("button", name="p99 ms", exact=True))
        button = heading.get_by_role("button")
        button.click()
        assert heading.get_attribute("aria-sort") == "ascending"
        rising = column(tab, "p99 ms")
        known = [float(text) for text in rising if text != "–"]
        assert known == sorted(known)
        assert rising[len(known) :] == ["–"] * (16 - len(known))
        button.click()
        assert heading.get_attribute("aria-sort") == "descending"
        assert [float(text) for text in column(tab, "p99 ms")[: len(known)]] == known[::-1]
        tab.get_by_role("button", name="model", exact=True).press("Enter")
        assert column(tab, "model") == ["cnn2"] * 8 + ["cnn4"] * 8
        assert heading.get_attribute("aria-sort") == "none"


def test_choosing_a_cell_and_another_beside_it_redraws_the_plots(browser: Any, file: Path) -> None:
    with opened(browser, file) as tab:
        drawn = tab.locator('[data-plot="histogram"] .scatterlayer path.js-line')
        before = drawn.first.get_attribute("d")
        tab.select_option("#cell-first", "11")
        assert "cnn4, batch size 8, concurrency 4" in tab.locator("#cell-lines").inner_text()
        assert drawn.first.get_attribute("d") != before
        tab.select_option("#cell-second", "0")
        assert drawn.count() == 2
        assert "cnn2, batch size 1, concurrency 1" in tab.locator("#cell-lines").inner_text()


def test_a_plot_gives_its_data_as_a_table_and_as_csv(browser: Any, file: Path, tmp_path: Path) -> None:
    with opened(browser, file) as tab:
        details = tab.locator('[data-table="throughput"]')
        details.locator("summary").click()
        rows = details.locator("tbody tr")
        rows.nth(15).wait_for()
        assert rows.count() == 16
        assert details.locator("thead").inner_text().split("\t")[0] == "series"
        with tab.expect_download() as waiting:
            tab.locator('[data-csv="throughput"]').click()
        waiting.value.save_as(tmp_path / "throughput.csv")
    lines = (tmp_path / "throughput.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == 'series,"batch size, images in one request",images/s'
    assert len(lines) == 17


def test_a_plot_is_saved_as_an_image_without_the_network(browser: Any, file: Path, tmp_path: Path) -> None:
    with opened(browser, file) as tab:
        for kind, starts in (("svg", b"<svg"), ("png", b"\x89PNG")):
            with tab.expect_download() as waiting:
                tab.locator(f'[data-image="latency"][data-format="{kind}"]').click()
            waiting.value.save_as(tmp_path / kind)
            assert (tmp_path / kind).read_bytes().startswith(starts)


def test_the_dark_scheme_colours_page_and_plots_and_follows_a_change(browser: Any, file: Path) -> None:
    luminance = "colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number); return (r + g + b) / 765; }"
    page_colour = f"({luminance})(getComputedStyle(document.body).backgroundColor)"
    text_colour = f"""({luminance})(getComputedStyle(document.querySelector('[data-plot="latency"] .xtick text')).fill)"""
    with opened(browser, file, color_scheme="light") as tab:
        assert tab.evaluate(page_colour) > 0.9
        assert tab.evaluate(text_colour) < 0.5
        tab.emulate_media(color_scheme="dark")
        tab.wait_for_function(f"{page_colour} < 0.15")
        tab.wait_for_function(f"{text_colour} > 0.5")


def test_a_dark_screen_prints_dark_text_on_white_paper(browser: Any, file: Path) -> None:
    note = """addEventListener("beforeprint", () => { const tick = document.querySelector('[data-plot="latency"] .xtick text');
        window.printed = getComputedStyle(tick).fill; })"""
    with opened(browser, file, color_scheme="dark") as tab:
        on_screen = tab.evaluate("""getComputedStyle(document.querySelector('[data-plot="latency"] .xtick text')).fill""")
        tab.evaluate(note)
        assert tab.pdf(format="A4").startswith(b"%PDF")
        assert tab.evaluate("window.printed") == "rgb(75, 85, 103)" != on_screen
        assert tab.evaluate("document.documentElement.dataset.paper") is None


@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_the_page_is_never_wider_than_the_screen(browser: Any, file: Path, width: int) -> None:
    with opened(browser, file, viewport={"width": width, "height": 844}) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_of_cells_fits_on_paper(browser: Any, file: Path) -> None:
    with opened(browser, file, viewport={"width": 718, "height": 1000}) as tab:  # A4 less the margins
        tab.emulate_media(media="print")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 718


def test_tables_and_controls_can_be_named_by_a_screen_reader(browser: Any, file: Path) -> None:
    with opened(browser, file) as tab:
        assert tab.evaluate("[...document.querySelectorAll('th')].every(head => head.scope)")
        unnamed = "[...document.querySelectorAll('select')].filter(control => !control.labels.length).length"
        assert tab.evaluate(unnamed) == 0
        assert tab.evaluate(
            "[...document.querySelectorAll('.scroll')].every(area => area.tabIndex === 0 && area.getAttribute('role') === 'region')"
        )


def test_a_report_of_hostile_names_runs_none_of_them(browser: Any, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    folder = recorded.bench(tmp_path / "run", label=bad, notes=[bad])
    text = (folder / "run.json").read_text(encoding="utf-8")
    (folder / "run.json").write_text(text.replace('"cnn2"', '"' + bad + '"'), encoding="utf-8")
    path = tmp_path / "report.html"
    path.write_text(page_of(folder), encoding="utf-8")
    with opened(browser, path) as tab:
        assert tab.locator("h1").inner_text() == bad
        tab.select_option("#cell-second", "2")
        tab.locator('[data-table="percentiles"] summary').click()
        assert tab.locator('[data-table="percentiles"] tbody td').first.inner_text().startswith(bad)


def test_two_hundred_cells_stay_below_eight_megabytes_and_open(browser: Any, tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(5)
    parts, cells = [], []
    for number in range(200):
        rows = recorded.closed_loop(number, "cnn4", 1 + number % 20, 1 + number // 20, rng)
        parts.append(rows)
        cells.append(recorded.cell_of(rows, number, "cnn4", 1 + number % 20, 1 + number // 20))
    page = page_of(recorded.save(tmp_path / "run", recorded.document(cells), np.concatenate(parts)))
    assert len(page.encode()) < 8_000_000
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with opened(browser, tmp_path / "report.html") as tab:
        ready = tab.evaluate("performance.now()")
        assert ready < 10_000  # three seconds on a machine of one's own; shared ones are slower by some factor
