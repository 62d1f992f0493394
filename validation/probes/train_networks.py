"""The networks that the training program knows: the seven of the whitepaper, and two small ones for processors.

Read on the controller for their names, so nothing here imports torch. The seven are torchvision's, and Inception-v4 is
timm's, without auxiliary classifiers, as tf_cnn_benchmarks trains them, and with the sizes of images of that program.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Network(NamedTuple):
    """A network: what reports call it, whose code it is ("own", or the module that has it), its name there, the side of
    its square images in pixels, how many classes it tells apart, its parameters, and the numbers that its convolutions
    and full layers give for one image, which are kept for the way back (both counted, torchvision 0.28 and timm 1.0).
    """

    title: str
    library: str
    entry: str
    side: int
    classes: int
    parameters: int
    kept: int


NETWORKS = {
    "alexnet": Network("AlexNet", "torchvision", "alexnet", 224, 1000, 61_100_840, 494_184),
    "googlenet": Network("GoogLeNet", "torchvision", "googlenet", 224, 1000, 6_624_904, 3_227_160),
    "inception3": Network("Inception-v3", "torchvision", "inception_v3", 299, 1000, 23_834_568, 8_968_488),
    "inception4": Network("Inception-v4", "timm", "inception_v4", 299, 1000, 42_679_816, 15_090_184),
    "resnet50": Network("ResNet-50", "torchvision", "resnet50", 224, 1000, 25_557_032, 11_114_984),
    "vgg16": Network("VGG-16", "torchvision", "vgg16", 224, 1000, 138_357_544, 13_556_712),
    "vgg19": Network("VGG-19", "torchvision", "vgg19", 224, 1000, 143_667_240, 14_861_288),
    "small": Network("small network without normalisation, as VGG", "own", "plain", 32, 10, 109_698, 24_786),
    "small-resnet": Network("small residual network, as ResNet", "own", "residual", 32, 10, 78_042, 86_026),
}
SMALL = "small"
IN_TENSORFLOW = {
    "inception3": "InceptionV3", "resnet50": "ResNet50", "vgg16": "VGG16", "vgg19": "VGG19",
    "small": "plain", "small-resnet": "residual",
}  # fmt: skip
"""Those that train_tf.py trains, too, and what TensorFlow's applications call them."""
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
PRODUCTS = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""The type that matrix products and convolutions come out in, by precision."""
_NO_HEADS: dict[str, dict[str, Any]] = {
    name: {"aux_logits": False, "init_weights": False} for name in ("googlenet", "inception3")
}


def tells_hours(name: str) -> bool:
    """True for the networks that the whitepaper's long test trains on ImageNet."""
    return NETWORKS[name].library != "own"


class Missing(Exception):
    """A network that cannot be trained here, with the reason in words."""


def build(torch: Any, name: str) -> Any:
    """The network with weights at random; Missing where the library that has it is not there, or cannot be loaded."""
    network = NETWORKS[name]
    if network.library == "own":
        made = {"plain": _plain, "residual": _residual}[network.entry](torch, network)
        return made
    try:
        library: Any = importlib.import_module(network.library)
    except ImportError as fault:
        raise Missing(f"{network.title} is one of {network.library}'s networks, which is not here: {fault}") from None
    except (RuntimeError, OSError, AttributeError) as fault:  # built for another torch
        why = (str(fault).splitlines() or [""])[0]
        raise Missing(f"{network.library}, which has {network.title}, does not fit torch here: {why}") from None
    if network.library == "timm":
        return library.create_model(network.entry, pretrained=False, num_classes=network.classes)
    return getattr(library.models, network.entry)(num_classes=network.classes, **_NO_HEADS.get(name, {}))


def _plain(torch: Any, network: Network) -> Any:
    """109 698 parameters: two convolutions and two full layers."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 200),
        nn.ReLU(),
        nn.Linear(200, network.classes),
    )


def _residual(torch: Any, network: Network) -> Any:
    """78 042 parameters: He et al. 2015, section 4.2 (ResNet for images of 32 x 32), with one block for each width."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.path = nn.Sequential(
                nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )
            self.side = nn.Sequential()
            if stride != 1 or before != width:
                self.side = nn.Sequential(nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, images: Any) -> Any:
            return torch.relu(self.path(images) + self.side(images))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, network.classes),
    )
