from __future__ import annotations

import math

import numpy as np
import pytest

from train.errors import TrainError
from train.model import build, conv_widths, flops_per_image, model_name


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [
        (2, 3_274_634),
        (
            4,
            (25 * 1 * 32 + 32) + (25 * 32 * 32 + 32) + (25 * 32 * 64 + 64) + (25 * 64 * 64 + 64)
            + (7 * 7 * 64 * 1024 + 1024) + (1024 * 10 + 10),
        ),
    ],
)  # fmt: skip
def test_the_model_has_the_published_number_of_parameters(depth: int, parameters: int) -> None:
    assert build(depth).count_params() == parameters


@pytest.mark.parametrize("depth", [2, 4])
def test_weights_start_within_two_deviations_of_a_tenth_and_biases_at_a_tenth(depth: int) -> None:
    for variable in build(depth).trainable_variables:
        value = variable.numpy()
        if variable.name == "bias":
            assert np.all(value == np.float32(0.1))
        else:
            assert np.abs(value).max() <= 0.2 + 1e-6
            # A normal distribution cut at two deviations has 0.88 of its deviation.
            if value.size > 10_000:
                assert abs(value.std() - 0.088) < 0.002
                assert abs(value.mean()) < 0.004


@pytest.mark.parametrize("depth", [2, 4, 6])
def test_the_model_takes_flat_images_and_gives_ten_logits(depth: int) -> None:
    model = build(depth)
    assert (model.name, model.input_shape, model.output_shape) == (model_name(depth), (None, 784), (None, 10))
    assert model.layers[-1].get_config()["activation"] == "linear"
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds.count("Conv2D") == depth
    assert kinds.count("MaxPooling2D") == 2
    assert kinds[-3:] == ["Dense", "Dropout", "Dense"]
    for layer in model.layers:
        if type(layer).__name__ == "Conv2D":
            assert (layer.padding, layer.kernel_size, layer.activation.__name__) == ("same", (5, 5), "relu")


@pytest.mark.parametrize("depth", [-2, -1, 0, 1, 3, 5])
def test_a_depth_that_can_not_be_halved_is_refused(depth: int) -> None:
    for refuse in (conv_widths, build, flops_per_image):
        with pytest.raises(TrainError, match="give an even number from 2"):
            refuse(depth)


@pytest.mark.parametrize("depth", [2, 4, 6])
def test_operations_per_image_are_those_of_the_layers(depth: int) -> None:
    total = 0
    for layer in build(depth).layers:
        if type(layer).__name__ in ("Conv2D", "Dense"):
            places = math.prod(layer.output.shape[1:-1])  # of a convolution; 1 for a dense layer
            total += 2 * places * math.prod(layer.kernel.shape)
    assert flops_per_image(depth) == total
