"""Two networks of the founding documents in plain Keras layers: nothing beside TensorFlow, nothing to download.

As published (parameters and all), without auxiliary classifiers, as tf_cnn_benchmarks trains them. `thin` divides all
channels, so that a processor trains the same layers in the same order in seconds; on a GPU it is 1. It comes as text to
GPU servers too, which have nothing of ours in their TensorFlow's Python, so that it imports nothing but TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

layers = tf.keras.layers


class Sizes(NamedTuple):
    """What reports call it, the side of its images as published in pixels, and the smallest that its layers take."""

    title: str
    side: int
    least: int


NETWORKS = {"alexnet": Sizes("AlexNet", 224, 63), "resnet50": Sizes("ResNet-50", 224, 32)}
CLASSES = 1000


def _conv(x: Any, channels: int, size: int, stride: int = 1) -> Any:
    return layers.Conv2D(channels, size, stride, "same", activation="relu", kernel_initializer="he_normal")(x)


def _alexnet(x: Any, thin: int) -> Any:
    """Of "One weird trick", which frameworks have."""
    x = layers.MaxPooling2D(3, 2)(_conv(x, max(1, 64 // thin), 11, 4))
    x = layers.MaxPooling2D(3, 2)(_conv(x, max(1, 192 // thin), 5))
    for channels in (384, 256, 256):
        x = _conv(x, max(1, channels // thin), 3)
    x = layers.Flatten()(layers.MaxPooling2D(3, 2)(x))
    for _ in range(2):
        x = layers.Dense(max(1, 4096 // thin), activation="relu")(layers.Dropout(0.5)(x))
    return layers.Dense(CLASSES)(x)


def _normal(x: Any, channels: int, size: int, stride: int = 1) -> Any:
    """A convolution and its normalisation by batch."""
    x = layers.Conv2D(channels, size, stride, "same", use_bias=False, kernel_initializer="he_normal")(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def _resnet50(x: Any, thin: int) -> Any:
    """Of bottlenecks (He et al. 2015), the stride in the middle of each as in version 1.5."""
    x = layers.MaxPooling2D(3, 2, "same")(layers.ReLU()(_normal(x, max(1, 64 // thin), 7, 2)))
    for stage, count in enumerate((3, 4, 6, 3)):
        width, out = max(1, (64 << stage) // thin), max(1, (256 << stage) // thin)
        for number in range(count):
            stride = 2 if stage and not number else 1
            path = layers.ReLU()(_normal(x, width, 1))
            path = layers.ReLU()(_normal(path, width, 3, stride))
            shortcut = x if number else _normal(x, out, 1, stride)
            x = layers.ReLU()(layers.Add()([_normal(path, out, 1), shortcut]))
    return layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x))


_MAKE: dict[str, Callable[[Any, int], Any]] = {"alexnet": _alexnet, "resnet50": _resnet50}


def build(name: str, side: int, thin: int) -> Any:
    """The network for images of that side, which come as bytes; its weights by the seed of this process."""
    images = layers.Input((side, side, 3), dtype="uint8")
    return tf.keras.Model(images, _MAKE[name](layers.Rescaling(1 / 127.5, -1.0)(images), thin))
