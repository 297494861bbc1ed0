"""The CNN, as one definition with its number of convolution layers as the parameter.

`cnn2` is the two-layer network of TensorFlow's former "Deep MNIST for experts" tutorial: convolution 5×5×32, pool,
convolution 5×5×64, pool, dense 1024, dropout, dense 10. `cnn4` has two convolutions before each pool.
"""

from __future__ import annotations

from typing import Any

from train.errors import TrainError
from train.mnist import IMAGE_SIZE

CLASSES = 10
_BLOCK_WIDTHS = (32, 64)
_KERNEL = 5
_DENSE = 1024
_SIDE = 28
DROPOUT_RATE = 0.5


def model_name(conv_layers: int) -> str:
    """`cnn2` for two convolution layers, `cnn4` for four."""
    return f"cnn{conv_layers}"


def conv_widths(conv_layers: int) -> list[list[int]]:
    """Output channels of the convolutions before each of the two pools. Raises TrainError for an odd or too small number."""
    if conv_layers < 2 or conv_layers % 2:
        raise TrainError(f"{conv_layers} convolution layers: give an even number from 2, half of them go before each pool")
    return [[width] * (conv_layers // 2) for width in _BLOCK_WIDTHS]


def build(conv_layers: int) -> Any:
    """A new Keras model: input `images` float32 [n, 784] in 0..1, output logits float32 [n, 10].

    Weights are drawn from a normal distribution of deviation 0.1 cut at two deviations, biases are 0.1, padding is
    "same", activations are ReLU. Raises TrainError for a number of layers that can't be built.
    """
    import keras

    layers = keras.layers
    common = {"kernel_initializer": keras.initializers.TruncatedNormal(stddev=0.1), "bias_initializer": keras.initializers.Constant(0.1)}
    images = keras.Input((IMAGE_SIZE,), name="images")
    x = layers.Reshape((_SIDE, _SIDE, 1))(images)
    for block in conv_widths(conv_layers):
        for width in block:
            x = layers.Conv2D(width, _KERNEL, padding="same", activation="relu", **common)(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.Dense(_DENSE, activation="relu", **common)(x)
    x = layers.Dropout(DROPOUT_RATE)(x)
    return keras.Model(images, layers.Dense(CLASSES, **common)(x), name=model_name(conv_layers))


def flops_per_image(conv_layers: int) -> int:
    """Operations to score one image, a multiplication and an addition counted as two; pools and activations left out."""
    total, side, channels = 0, _SIDE, 1
    for block in conv_widths(conv_layers):
        for width in block:
            total += 2 * side * side * _KERNEL * _KERNEL * channels * width
            channels = width
        side //= 2
    return total + 2 * side * side * channels * _DENSE + 2 * _DENSE * CLASSES
