"""The networks of the founding documents in plain torch.nn: no library beside PyTorch, nothing to download.

As published (parameters and all), without auxiliary classifiers, as tf_cnn_benchmarks trains them. `thin` divides all
channels, so that a processor trains the same layers in the same order in seconds; on a GPU it is 1. It comes as text to
GPU servers too, which have nothing of ours in their PyTorch's Python, so that it imports nothing but torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn


class Sizes(NamedTuple):
    """What reports call it, the side of its images as published in pixels, the smallest that its layers can take, and
    whether it normalises by batch (which other kernels than the native ones do for a leased GPU)."""

    title: str
    side: int
    least: int
    normalises: bool


NETWORKS = {
    "alexnet": Sizes("AlexNet", 224, 63, False),
    "googlenet": Sizes("GoogLeNet", 224, 32, True),
    "inception3": Sizes("Inception-v3", 299, 75, True),
    "inception4": Sizes("Inception-v4", 299, 75, True),
    "resnet50": Sizes("ResNet-50", 224, 32, True),
    "resnet101": Sizes("ResNet-101", 224, 32, True),
    "vgg16": Sizes("VGG-16", 224, 32, False),
    "vgg19": Sizes("VGG-19", 224, 32, False),
}
CLASSES = 1000


class Thin:
    """Layers with 1/thin of their channels."""

    def __init__(self, thin: int) -> None:
        """By how much."""
        self.thin = thin

    def of(self, channels: int) -> int:
        """So many are left."""
        return max(1, channels // self.thin)

    def conv(self, before: int, after: int, size: Any, stride: int = 1, padding: Any = 0, image: bool = False) -> Any:
        """Convolution, normalisation, ReLU; image: its input has the three colours."""
        inside = before if image else self.of(before)
        return nn.Sequential(
            nn.Conv2d(inside, self.of(after), size, stride, padding, bias=False),
            nn.BatchNorm2d(self.of(after), eps=1e-3),
            nn.ReLU(inplace=True),
        )


class Side(nn.Module):
    """Branches side by side, their channels one after the other."""

    def __init__(self, *branches: nn.Module) -> None:
        """In their order."""
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All of them."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class Bottleneck(nn.Module):
    """ResNet's: three convolutions with a shortcut (He et al. 2015, the stride in the middle as in version 1.5)."""

    def __init__(self, inside: int, width: int, out: int, stride: int) -> None:
        """Its channels; the stride is the middle one's."""
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Path and shortcut."""
        y: torch.Tensor = self.relu(self.path(x) + self.shortcut(x))
        return y


def _resnet(t: Thin, blocks: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, t.of(64), 7, 2, 3, bias=False), nn.BatchNorm2d(t.of(64)), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inside = t.of(64)
    for stage, count in enumerate(blocks):
        width, out = t.of(64 << stage), t.of(256 << stage)
        for number in range(count):
            layers.append(Bottleneck(inside, width, out, 2 if stage and not number else 1))
            inside = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


def _dense(t: Thin, inside: int, before: int, dropout_first: bool) -> list[nn.Module]:
    """The three full layers of AlexNet and VGG."""
    wide = t.of(4096)
    layers: list[nn.Module] = [
        nn.Linear(inside, wide), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(wide, wide), nn.ReLU(inplace=True),
    ]  # fmt: skip
    first: list[nn.Module] = [nn.Dropout()] if dropout_first else []
    last: list[nn.Module] = [] if dropout_first else [nn.Dropout()]
    return [nn.AdaptiveAvgPool2d(before), nn.Flatten(), *first, *layers, *last, nn.Linear(wide, CLASSES)]


def _vgg(t: Thin, twos: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    inside = 3
    for count, channels in zip(twos, (64, 128, 256, 512, 512)):
        for _ in range(count):
            layers += [nn.Conv2d(inside, t.of(channels), 3, padding=1), nn.ReLU(inplace=True)]
            inside = t.of(channels)
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *_dense(t, inside * 49, 7, False))


def _alexnet(t: Thin) -> nn.Module:
    """Of "One weird trick", which frameworks have."""
    layers: list[nn.Module] = [nn.Conv2d(3, t.of(64), 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
    layers += [nn.Conv2d(t.of(64), t.of(192), 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
    for before, after in ((192, 384), (384, 256), (256, 256)):
        layers += [nn.Conv2d(t.of(before), t.of(after), 3, padding=1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(3, 2), *_dense(t, t.of(256) * 36, 6, True))


def _head(channels: int, dropout: float) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels, CLASSES)]


def _googlenet(t: Thin) -> nn.Module:
    def block(inside: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> nn.Module:
        return Side(
            t.conv(inside, one, 1),
            nn.Sequential(t.conv(inside, three[0], 1), t.conv(*three, 3, padding=1)),
            nn.Sequential(t.conv(inside, five[0], 1), t.conv(*five, 3, padding=1)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), t.conv(inside, pool, 1)),
        )

    return nn.Sequential(
        t.conv(3, 64, 7, 2, 3, image=True), nn.MaxPool2d(3, 2, ceil_mode=True),
        t.conv(64, 64, 1), t.conv(64, 192, 3, padding=1), nn.MaxPool2d(3, 2, ceil_mode=True),
        block(192, 64, (96, 128), (16, 32), 32), block(256, 128, (128, 192), (32, 96), 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        block(480, 192, (96, 208), (16, 48), 64), block(512, 160, (112, 224), (24, 64), 64),
        block(512, 128, (128, 256), (24, 64), 64), block(512, 112, (144, 288), (32, 64), 64),
        block(528, 256, (160, 320), (32, 128), 128), nn.MaxPool2d(2, 2, ceil_mode=True),
        block(832, 256, (160, 320), (32, 128), 128), block(832, 384, (192, 384), (48, 128), 128),
        *_head(sum(map(t.of, (384, 384, 128, 128))), 0.2),
    )  # fmt: skip


def _inception3(t: Thin) -> nn.Module:
    def a(inside: int, pool: int) -> nn.Module:
        return Side(
            t.conv(inside, 64, 1),
            nn.Sequential(t.conv(inside, 48, 1), t.conv(48, 64, 5, padding=2)),
            nn.Sequential(t.conv(inside, 64, 1), t.conv(64, 96, 3, padding=1), t.conv(96, 96, 3, padding=1)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), t.conv(inside, pool, 1)),
        )

    def c(seven: int) -> nn.Module:
        wide, tall = ((1, 7), (0, 3)), ((7, 1), (3, 0))

        def line(*steps: tuple[int, int, tuple[Any, Any]]) -> list[nn.Module]:
            return [t.conv(before, after, size, padding=padding) for before, after, (size, padding) in steps]

        s = seven
        return Side(
            t.conv(768, 192, 1),
            nn.Sequential(t.conv(768, s, 1), *line((s, s, wide), (s, 192, tall))),
            nn.Sequential(t.conv(768, s, 1), *line((s, s, tall), (s, s, wide), (s, s, tall), (s, 192, wide))),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), t.conv(768, 192, 1)),
        )

    def e(inside: int) -> nn.Module:
        def split() -> nn.Module:
            return Side(t.conv(384, 384, (1, 3), padding=(0, 1)), t.conv(384, 384, (3, 1), padding=(1, 0)))

        return Side(
            t.conv(inside, 320, 1),
            nn.Sequential(t.conv(inside, 384, 1), split()),
            nn.Sequential(t.conv(inside, 448, 1), t.conv(448, 384, 3, padding=1), split()),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), t.conv(inside, 192, 1)),
        )

    b = Side(
        t.conv(288, 384, 3, 2),
        nn.Sequential(t.conv(288, 64, 1), t.conv(64, 96, 3, padding=1), t.conv(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )
    d = Side(
        nn.Sequential(t.conv(768, 192, 1), t.conv(192, 320, 3, 2)),
        nn.Sequential(t.conv(768, 192, 1), t.conv(192, 192, (1, 7), padding=(0, 3)),
                      t.conv(192, 192, (7, 1), padding=(3, 0)), t.conv(192, 192, 3, 2)),
        nn.MaxPool2d(3, 2),
    )  # fmt: skip
    return nn.Sequential(
        t.conv(3, 32, 3, 2, image=True), t.conv(32, 32, 3), t.conv(32, 64, 3, padding=1), nn.MaxPool2d(3, 2),
        t.conv(64, 80, 1), t.conv(80, 192, 3), nn.MaxPool2d(3, 2),
        a(192, 32), a(256, 64), a(288, 64), b, c(128), c(160), c(160), c(192), d, e(1280), e(2048),
        *_head(t.of(2048), 0.5),
    )  # fmt: skip


def _inception4(t: Thin) -> nn.Module:
    wide, tall = ((1, 7), (0, 3)), ((7, 1), (3, 0))

    def line(*steps: tuple[int, int, tuple[Any, Any]]) -> nn.Module:
        return nn.Sequential(*(t.conv(before, after, size, padding=pad) for before, after, (size, pad) in steps))

    one, three = (1, 0), (3, 1)

    def pooled(inside: int, after: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), t.conv(inside, after, 1))

    def a() -> nn.Module:
        return Side(t.conv(384, 96, 1), line((384, 64, one), (64, 96, three)),
                    line((384, 64, one), (64, 96, three), (96, 96, three)), pooled(384, 96))  # fmt: skip

    def b() -> nn.Module:
        return Side(t.conv(1024, 384, 1), line((1024, 192, one), (192, 224, wide), (224, 256, tall)),
                    line((1024, 192, one), (192, 192, tall), (192, 224, wide), (224, 224, tall), (224, 256, wide)),
                    pooled(1024, 128))  # fmt: skip

    def c() -> nn.Module:
        flat, high = ((1, 3), (0, 1)), ((3, 1), (1, 0))
        ends = [Side(line((inside, 256, flat)), line((inside, 256, high))) for inside in (384, 512)]
        return Side(t.conv(1536, 256, 1), nn.Sequential(line((1536, 384, one)), ends[0]),
                    nn.Sequential(line((1536, 384, one), (384, 448, high), (448, 512, flat)), ends[1]),
                    pooled(1536, 256))  # fmt: skip

    return nn.Sequential(
        t.conv(3, 32, 3, 2, image=True), t.conv(32, 32, 3), t.conv(32, 64, 3, padding=1),
        Side(nn.MaxPool2d(3, 2), t.conv(64, 96, 3, 2)),
        Side(nn.Sequential(t.conv(160, 64, 1), t.conv(64, 96, 3)),
             nn.Sequential(line((160, 64, one), (64, 64, wide), (64, 64, tall)), t.conv(64, 96, 3))),
        Side(t.conv(192, 192, 3, 2), nn.MaxPool2d(3, 2)),
        *(a() for _ in range(4)),
        Side(t.conv(384, 384, 3, 2),
             nn.Sequential(line((384, 192, one), (192, 224, three)), t.conv(224, 256, 3, 2)), nn.MaxPool2d(3, 2)),
        *(b() for _ in range(7)),
        Side(nn.Sequential(t.conv(1024, 192, 1), t.conv(192, 192, 3, 2)),
             nn.Sequential(line((1024, 256, one), (256, 256, wide), (256, 320, tall)), t.conv(320, 320, 3, 2)),
             nn.MaxPool2d(3, 2)),
        *(c() for _ in range(3)),
        *_head(t.of(1536), 0.2),
    )  # fmt: skip


_MAKE: dict[str, Callable[[Thin], nn.Module]] = {
    "alexnet": _alexnet,
    "googlenet": _googlenet,
    "inception3": _inception3,
    "inception4": _inception4,
    "resnet50": lambda t: _resnet(t, (3, 4, 6, 3)),
    "resnet101": lambda t: _resnet(t, (3, 4, 23, 3)),
    "vgg16": lambda t: _vgg(t, (2, 2, 3, 3, 3)),
    "vgg19": lambda t: _vgg(t, (2, 2, 4, 4, 4)),
}


def build(name: str, thin: int = 1) -> nn.Module:
    """The network with weights by the generator of this process; a ReLU's own spread, so that small ones learn."""
    network = _MAKE[name](Thin(thin))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return network
