"""The answers on top of the report: one image's time, the best throughput, training beside them. Only valid cells answer.

An answer is a value with its sentence, or a reason why it is withheld.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loadtest import stats
from report import words
from report.records import Cell, Run


@dataclass(frozen=True)
class Answer:
    """One answer: what it says (`title`), its number as text or None where withheld, its unit, and a sentence."""

    title: str
    figure: str | None
    unit: str
    sentence: str


@dataclass(frozen=True)
class ModelAnswers:
    """The answers of one model. `one_image_ms` is the p50 of one request with one image, in milliseconds."""

    model: str
    one_image_ms: float | None
    train_seconds: float | None
    answers: tuple[Answer, ...]


def models(run: Run) -> list[str]:
    """The names of the run's models, in the order in which the cells name them, then those only trained."""
    return list(dict.fromkeys([*(cell.model for cell in run.cells), *run.training]))


def answer(run: Run) -> list[ModelAnswers]:
    """The answers of every model of the run."""
    return [_model_answers(run, model) for model in models(run)]


def one_image_cell(cells: Iterable[Cell], model: str) -> Cell | None:
    """The closed-loop cell of `model` with one image per request and the fewest requests in flight, valid or not."""
    alone = [
        cell for cell in cells if cell.model == model and cell.batch_size == 1 and cell.mode == "closed" and cell.concurrency is not None
    ]
    return min(alone, key=lambda cell: (cell.concurrency or 0, not cell.valid), default=None)


def best_throughput_cell(cells: Iterable[Cell], model: str) -> Cell | None:
    """The valid cell of `model` with the most images per second; at the same rate, the one with the smaller batch."""
    able = [cell for cell in cells if cell.model == model and cell.valid and cell.images_per_s]
    return max(able, key=lambda cell: (cell.images_per_s or 0.0, -cell.batch_size), default=None)


def comparison(found: list[ModelAnswers]) -> str | None:
    """One sentence that sets the models beside each other, or None with fewer than two that can be."""
    able = sorted((item for item in found if item.one_image_ms), key=lambda item: item.one_image_ms or 0.0)
    if len(able) < 2:
        return None
    first, last = able[0], able[-1]
    times = words.number((last.one_image_ms or 0.0) / (first.one_image_ms or 1.0), 3)
    text = f"One image takes {last.model} {times} times as long as {first.model}"
    if first.train_seconds and last.train_seconds:
        text += f"; its training took {words.number(last.train_seconds / first.train_seconds, 3)} times as long"
    return text + "."


def _model_answers(run: Run, model: str) -> ModelAnswers:
    alone = one_image_cell(run.cells, model)
    p50 = alone.response_ms.p50 if alone and alone.valid else None
    record = run.training.get(model)
    trained = record.train_seconds if record else None
    return ModelAnswers(model, p50, trained, (_one_image(alone), _best(run, model), _trained(run, model), _scorings(p50, trained)))


def _one_image(cell: Cell | None) -> Answer:
    title = "to score one image"
    if cell is None:
        return Answer(title, None, "", "No closed-loop cell with batch size 1 in this run.")
    if not cell.valid:
        return Answer(title, None, "", f"Withheld: the cell ({words.load_level(cell)}) isn't valid. {_sentence(cell.reasons)}")
    if cell.response_ms.p50 is None:
        need = stats.samples_needed(stats.QUANTILES["p50"])
        return Answer(title, None, "", f"Withheld: p50 needs {need} successes, this cell has {cell.ok:,}.")
    limits = cell.response_ms.interval("p50")
    spread = f" (95 % confidence {words.number(limits[0])} to {words.number(limits[1])} ms)" if limits else ""
    tail = f"; one in a hundred takes longer than {words.number(cell.response_ms.p99)} ms" if cell.response_ms.p99 is not None else ""
    flight = "one request in flight" if cell.concurrency == 1 else f"{cell.concurrency} requests in flight"
    return Answer(
        title,
        words.number(cell.response_ms.p50, 3),
        "ms",
        f"Half of {cell.ok:,} requests with one image were answered within {words.number(cell.response_ms.p50)} ms{spread}, "
        f"with {flight}{tail}.",
    )


def _best(run: Run, model: str) -> Answer:
    title = "best throughput"
    cell = best_throughput_cell(run.cells, model)
    if cell is None:
        return Answer(title, None, "", "Withheld: no valid cell of this model has a throughput.")
    left_out = sum(1 for other in run.cells if other.model == model and not other.valid)
    takes = f", where half of the requests take at most {words.number(cell.response_ms.p50)} ms" if cell.response_ms.p50 is not None else ""
    omitted = f" {words.plural(left_out, 'cell')} that {'is' if left_out == 1 else 'are'} not valid left out." if left_out else ""
    return Answer(
        title,
        words.about(cell.images_per_s or 0.0),
        "images/s",
        f"Reached with {words.plural(cell.batch_size, 'image')} in a request at {words.load_level(cell)}{takes}.{omitted}",
    )


def _trained(run: Run, model: str) -> Answer:
    title = "to train"
    record = run.training.get(model)
    if record is None or record.train_seconds is None:
        return Answer(title, None, "", "This run holds no training record of the model.")
    recipe, accuracy = record.recipe, record.test_accuracy
    steps = f"{words.plural(recipe.steps, 'step')} " if recipe.steps is not None else ""
    batch = f"of {words.plural(recipe.batch_size, 'image')} " if recipe.batch_size is not None else ""
    where = f"on {record.device.upper()}" if record.device else "on a device that the record doesn't name"
    scored = f", where {words.percent(accuracy)} of the test images came out right" if accuracy is not None else ""
    unlike = ""
    if record.device and run.server.device and record.device != run.server.device:
        unlike = f" The scoring ran on {run.server.device.upper()}."
    return Answer(title, *_duration(record.train_seconds), f"{steps}{batch}{where}{scored}.{unlike}".strip())


def _duration(seconds: float) -> tuple[str, str]:
    figure, _, unit = words.duration(seconds).rpartition(" ")
    return (figure, unit) if seconds < 120 else (words.duration(seconds), "")


def _scorings(p50_ms: float | None, train_seconds: float | None) -> Answer:
    title = "scorings in the time of the training"
    if p50_ms is None or train_seconds is None:
        return Answer(title, None, "", "Withheld: it needs both the time of one image and the training time.")
    count = train_seconds * 1000 / p50_ms
    return Answer(
        title,
        words.about(count),
        "images",
        f"{words.duration(train_seconds)} of training divided by {words.number(p50_ms)} ms: requests with one image, one after another.",
    )


def _sentence(reasons: tuple[str, ...]) -> str:
    text = "; ".join(reasons) if reasons else "the run gives no reason"
    return text[0].upper() + text[1:].rstrip(".") + "."
