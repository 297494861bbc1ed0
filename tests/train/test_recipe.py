from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.mnist import Mnist
from train.model import build
from train.recipe import Progress, Recipe, batches, evaluate, predict_logits, train


@pytest.fixture(scope="module")
def few(data: Mnist) -> Mnist:
    """The first images of MNIST, for what doesn't depend on how many there are."""
    return dataclasses.replace(
        data,
        train_images=data.train_images[:500],
        train_labels=data.train_labels[:500],
        test_images=data.test_images[:1_100],
        test_labels=data.test_labels[:1_100],
    )


def trained_curve(few: Mnist, recipe: Recipe) -> list[Progress]:
    curve: list[Progress] = []
    _, record = train(2, few, recipe, 1.0, curve.append)
    assert record["curve"] == [dataclasses.asdict(point) for point in curve]
    return curve


@settings(deadline=None)
@given(images=st.integers(1, 200), steps=st.integers(1, 50), size=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_batches_are_whole_epochs_each_a_permutation_and_the_same_for_the_same_seed(images: int, steps: int, size: int, seed: int) -> None:
    recipe = Recipe(steps=steps, batch_size=size, seed=seed)
    plan = batches(images, recipe)
    assert plan.shape == (steps, size)
    assert plan.dtype == np.int32
    for first in range(0, steps * size, images):
        epoch = plan.reshape(-1)[first : first + images]
        assert len(set(epoch.tolist())) == len(epoch)
        assert set(epoch.tolist()) <= set(range(images))
    assert np.array_equal(plan, batches(images, recipe))


def test_another_seed_and_another_epoch_are_in_another_order() -> None:
    plan = batches(500, Recipe(steps=20, seed=1))
    assert not np.array_equal(plan[:10], plan[10:])
    assert not np.array_equal(plan, batches(500, Recipe(steps=20, seed=2)))


def test_the_recipe_is_the_published_one_unless_told_otherwise() -> None:
    assert dataclasses.asdict(Recipe()) == {
        "steps": 20_000,
        "batch_size": 50,
        "optimizer": "adam",
        "learning_rate": 1e-4,
        "dropout_rate": 0.5,
        "precision": "float32",
        "seed": 0,
    }


def test_the_same_seed_gives_the_same_first_loss_and_another_seed_another(few: Mnist) -> None:
    first, again, other = (trained_curve(few, Recipe(steps=1, seed=seed))[0] for seed in (3, 3, 4))
    assert (first.step, first.loss, first.accuracy) == (0, again.loss, again.accuracy)
    assert first.loss != other.loss


@pytest.mark.slow
def test_the_curve_has_a_point_every_hundred_steps_and_training_lowers_the_loss(few: Mnist) -> None:
    curve = trained_curve(few, Recipe(steps=101, batch_size=10))
    assert [point.step for point in curve] == [0, 100]
    assert curve[-1].loss < curve[0].loss / 2
    assert [point.seconds for point in curve] == sorted(point.seconds for point in curve)


def test_training_makes_the_steps_it_was_asked_for(few: Mnist) -> None:
    # Adam moves a weight by at most about the learning rate a step, so the distance tells one step from none and from many.
    start = trained_weights(few, 1, rate=0.0)
    one, three = trained_weights(few, 1), trained_weights(few, 3)
    assert 0 < np.abs(one - start).max() <= 1.01e-4
    assert 1.5e-4 < np.abs(three - start).max() <= 3.1e-4


def trained_weights(few: Mnist, steps: int, rate: float = 1e-4) -> np.ndarray:
    model, record = train(2, few, Recipe(steps=steps, learning_rate=rate), 0.0, lambda _: None)
    assert record["recipe"]["steps"] == steps
    return np.concatenate([variable.numpy().reshape(-1) for variable in model.trainable_variables])


def test_times_in_a_record_add_up(few: Mnist) -> None:
    _, record = train(2, few, Recipe(steps=2), 1.0, lambda _: None)
    parts = 1.0 + record["compile_seconds"] + record["train_seconds"] + record["evaluate_seconds"]
    assert record["total_seconds"] == pytest.approx(parts)
    assert record["steps_per_s"] == pytest.approx(2 / record["train_seconds"])
    assert record["images_per_s"] == pytest.approx(100 / record["train_seconds"])


def test_evaluation_is_the_mean_over_the_test_images_without_dropout(few: Mnist) -> None:
    model = build(2)
    logits = np.asarray(model(few.test_images.astype(np.float32) / 255, training=False), dtype=np.float64)
    wanted = few.test_labels
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(wanted)), wanted]
    loss, accuracy = evaluate(model, few)
    assert loss == pytest.approx(losses.mean(), rel=1e-4)
    assert accuracy == (logits.argmax(axis=1) == wanted).mean()
    assert np.allclose(predict_logits(model, few.test_images), logits, atol=1e-4)
