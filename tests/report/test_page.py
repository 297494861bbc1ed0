"""What the report says: values from public reports of load tools that said something else, and what it withholds."""

from __future__ import annotations

import html as escaping
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest

from report import run
from report.columns import columns, failure_share
from tests.report import recorded
from tests.report.conftest import page_of


def field(folder: Path, title: str, cell: int = 0) -> Any:
    """What the table shows in the column `title` of a cell."""
    found = run.load(folder)
    return next(column for column in columns(found) if column.title == title).show(found.cells[cell])


def text_of(page: str) -> str:
    """The words of the page without its scripts and styles."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(escaping.unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found.group(1))


def test_a_lone_sample_is_its_own_maximum_and_no_percentile_is_stated(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [596.0])
    assert field(folder, "max ms").text == "596.0"
    assert field(folder, "p99 ms").text == "–"
    assert "p99 needs 1,000 successes, this cell has 1" in field(folder, "p99 ms").hint


def test_596_ms_a_thousand_times_has_a_p99_of_596_ms(tmp_path: Path) -> None:
    assert field(recorded.of_durations(tmp_path, [596.0] * 1000), "p99 ms").text == "596.0"


def test_times_below_a_millisecond_keep_their_digits(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3).lognormal(np.log(0.598), 0.5, 20_000)
    folder = recorded.of_durations(tmp_path, drawn.tolist())
    for name, fraction in (("p50 ms", 0.5), ("p90 ms", 0.9), ("p99 ms", 0.99)):
        assert float(field(folder, name).text) == pytest.approx(np.quantile(drawn, fraction), rel=0.01)


@pytest.mark.parametrize("milliseconds", [0.5, 1.5, 2.5])
def test_halves_are_not_rounded_to_whole_milliseconds(tmp_path: Path, milliseconds: float) -> None:
    assert float(field(recorded.of_durations(tmp_path, [milliseconds] * 20), "p50 ms").text) == milliseconds


def test_a_percentile_is_a_sample_never_between_two(tmp_path: Path) -> None:
    assert field(recorded.of_durations(tmp_path, [float(value) for value in range(1, 101)]), "p50 ms").text == "50.00"


def test_without_a_success_there_is_no_latency_rather_than_zero(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [], [1.0] * 50)
    for name in ("p50 ms", "p90 ms", "p99 ms", "mean ms", "max ms", "accuracy"):
        assert field(folder, name).text == "–"
        assert "no request succeeded" in field(folder, name).hint
    assert field(folder, "failed").text == "50"
    assert "Withheld: p50 needs 20 successes, this cell has 0." in text_of(page_of(folder))


def test_workers_are_merged_by_sample_and_their_percentiles_not_averaged(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 999 + [1000.0], worker=[0] * 999 + [1])
    assert (field(folder, "p50 ms").text, field(folder, "p99 ms").text, field(folder, "max ms").text) == ("1.000", "1.000", "1,000")
    curve = data_of(page_of(folder))["cells"][0]["plots"]["percentiles"]["data"]
    assert max(value for trace in curve for value in trace["y"]) == 1.0


def test_p99_is_not_the_maximum_of_a_thousand_and_one_samples(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 1000 + [500.0])
    assert (field(folder, "p99 ms").text, field(folder, "max ms").text) == ("1.000", "500.0")


def test_a_few_outliers_among_many_dont_move_p99(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [0.25] * 430_000 + [190.0] * 30)
    assert (field(folder, "p99 ms").text, field(folder, "max ms").text) == ("0.2500", "190.0")


def test_a_failure_without_a_request_has_no_share(bench: Path) -> None:
    cell = run.load(bench).cells[0]
    assert failure_share(type(cell)(**{**vars(cell), "sent": 0, "ok": 0, "failed": 1})) is None


def test_latencies_are_of_successes_and_failures_have_their_own_column(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [20.0] * 50, [1.0] * 50)
    assert float(field(folder, "mean ms").text) == 20.0
    shown = field(folder, "failed")
    assert (shown.text, shown.below, shown.hint) == ("50", "UNAVAILABLE 50", "50.00 % of what was sent failed")


def test_requests_and_images_per_second_are_both_named(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 400, batch_size=8)
    assert (field(folder, "requests/s").text, field(folder, "images/s").text) == ("100.0", "800.0")


def test_the_head_names_loop_concurrency_think_time_warm_up_and_window(page: str) -> None:
    assert (
        "closed loop, concurrency 1 and 4 · think time none · warm-up 1 s per cell · window 4 s per cell · 2 load processes, channel wire"
        in text_of(page)
    )


def test_thread_settings_that_are_missing_are_auto_with_the_number_of_cpus(page: str) -> None:
    assert "threads auto (2 cpus)" in text_of(page)


def test_shared_cpus_are_said_in_a_sentence(page: str) -> None:
    assert "Server and load generator share CPUs 0–1" in text_of(page)


def test_the_embedded_server_is_never_called_tensorflow_serving(page: str) -> None:
    text = text_of(page)
    assert "embedded server (not TensorFlow Serving) on CPU" in text
    assert "TensorFlow Serving" not in text.replace("embedded server (not TensorFlow Serving)", "")


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ({"engine": "tensorflow-serving", "version": "2.20.0"}, "TensorFlow Serving 2.20.0"),
        ({"engine": "tensorflow-serving", "version": None}, "TensorFlow Serving (version unknown)"),
        ({"engine": "unknown"}, "unknown server"),
        ({"engine": "something else"}, "unknown server"),
    ],
)
def test_the_engine_is_named_as_the_run_names_it(tmp_path: Path, server: dict[str, Any], name: str) -> None:
    assert f"Measured through the {name}." in text_of(page_of(recorded.save(tmp_path, recorded.document([], server=server), NO_ROWS)))


NO_ROWS = np.empty(0, recorded.samples.DTYPE)


def test_a_run_without_cells_is_a_page_all_the_same(tmp_path: Path) -> None:
    text = text_of(page_of(recorded.save(tmp_path, recorded.document([], training={}), NO_ROWS)))
    assert "This run holds no cell." in text
    assert "No cell has a value to plot." in text


def test_an_incomplete_run_has_a_banner(tmp_path: Path, page: str) -> None:
    cut = recorded.save(tmp_path, recorded.document([], complete=False, notes=["worker 1 was lost"]), NO_ROWS)
    assert "Incomplete run." in text_of(page_of(cut))
    assert "worker 1 was lost" in text_of(page_of(cut))
    assert "Incomplete run." not in text_of(page)


def test_the_answers_give_the_numbers_of_their_cells(bench: Path, page: str) -> None:
    found = run.load(bench)
    text = text_of(page)
    alone = next(cell for cell in found.cells if (cell.model, cell.batch_size, cell.concurrency) == ("cnn2", 1, 1))
    best = max((cell for cell in found.cells if cell.model == "cnn2" and cell.valid), key=lambda cell: cell.images_per_s or 0)
    p50 = alone.response_ms.p50 or 0
    assert f"{p50:.3f} ms to score one image" in text
    assert f"Reached with {best.batch_size} images in a request at concurrency {best.concurrency}" in text
    assert "23.8 s to train 1,000 steps of 50 images on CPU" in text
    stated = re.search(r"([\d,]+) images scorings in the time of the training 23.8 s", text)
    assert stated
    assert int(stated.group(1).replace(",", "")) == pytest.approx(recorded.TRAIN_SECONDS["cnn2"] * 1000 / p50, rel=0.005)


def test_a_cell_that_is_not_valid_gives_no_answer_and_is_struck_through(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 1000, valid=False, reasons=["client-bound: no CPU left"])
    page = page_of(folder)
    text = text_of(page)
    assert "– to score one image Withheld: the cell (concurrency 1) isn't valid. Client-bound: no CPU left." in text
    assert "Withheld: no valid cell of this model has a throughput." in text
    assert "Withheld: it needs both the time of one image and the training time." in text
    assert '<tr class="invalid">' in page
    assert [trace["name"] for trace in data_of(page)["figures"]["latency"]["data"]] == ["not valid"]


def test_published_times_are_named_unnamed_hardware_and_not_comparable_at_other_steps(page: str, tmp_path: Path) -> None:
    text = text_of(page)
    assert "published, unnamed hardware" in text
    assert "34 min 40 s 4 min 44 s 20,000" in text
    assert "cnn2: not comparable as they are: 1,000 steps here, 20,000 there." in text
    whole = recorded.document([], training={"cnn2": recorded.training_record("cnn2", 20_000)})
    text = text_of(page_of(recorded.save(tmp_path, whole, NO_ROWS)))
    assert "the same number of steps; the published hardware is unnamed" in text
    assert "no training record in this run" in text


def test_the_command_is_quoted_for_a_shell(page: str) -> None:
    assert "python -m loadtest --label 'a b'" in text_of(page)


def test_open_loop_says_why_response_time_and_the_servers_own_time_differ(tmp_path: Path) -> None:
    rows = recorded.samples.rows(
        [
            (0, 0, recorded.START_NS + i * 1000, recorded.START_NS + i * 1000, recorded.START_NS + i * 1000 + 2 * 10**9, 0, 1, 1)
            for i in range(100)
        ]
    )
    entry = recorded.cell_of(
        rows, 0, "cnn2", 1, None, mode="open", offered_per_s=500.0, server_ms={"request_mean": 63.0, "runtime_mean": 60.0}
    )
    folder = recorded.save(tmp_path, recorded.document([entry]), rows)
    assert "the time that a request waited before the server saw it" in json.dumps(data_of(page_of(folder))["cells"])
    assert field(folder, "service p50 ms").text == "2,000"
    assert "open loop, 500.0 requests/s offered" in text_of(page_of(folder))


def test_samples_that_dont_add_up_to_the_counts_are_called_out(tmp_path: Path) -> None:
    folder = recorded.of_durations(tmp_path, [1.0] * 30, sent=31)
    assert "run.json counts 31 requests in the window, samples.parquet holds 30." in text_of(page_of(folder))


def test_names_from_the_run_cant_become_markup(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    entry = recorded.cell_of(NO_ROWS, 0, "cnn2", 1) | {"model": bad, "valid": False, "reasons": [bad], "notes": [bad]}
    page = page_of(recorded.save(tmp_path, recorded.document([entry], label=bad, notes=[bad], command=[bad]), NO_ROWS))
    assert bad not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_plotting_library_is_inside_once_and_nothing_is_linked(page: str) -> None:
    assert page.count("plotly.js v") == 1
    head = page[: page.index('<script type="application/json"')]
    assert not re.search(r'(src|href)="(?!#|data:,)', head)
    assert len(page) < 8_000_000


def test_every_figure_is_one_that_plotly_knows(page: str) -> None:
    data = data_of(page)
    for figure in [*data["figures"].values(), *(plot for cell in data["cells"] for plot in cell["plots"].values())]:
        plotly.graph_objects.Figure(figure)


def test_the_same_run_gives_the_same_page(bench: Path, page: str) -> None:
    assert page_of(bench) == page
