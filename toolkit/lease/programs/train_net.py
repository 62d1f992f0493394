"""The network of elastic-ai-train on one device, and the data that it learns: all of it follows from a seed.

Two layers: inputs, ReLU, classes. The kernels are those of toolkit/lease/programs/kernels/train.cu.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from toolkit.lease.programs.train_gpu import Gpu, Pinned

Launch = Callable[[], None]
FLOAT = 4  # bytes
NOWHERE = 8  # an address below all memory
TILE, LINE = 16, 256  # threads of a block for matrices (each way), for rows of numbers
KINDS = 8  # batches, taken in turn


@dataclass(frozen=True)
class Shape:
    """Numbers of a network's inputs, hidden values and classes."""

    inputs: int
    hidden: int
    classes: int

    @property
    def weights(self) -> int:
        """Of both layers, with their biases."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.classes


def first_weights(shape: Shape, seed: int) -> bytes:
    """Even random numbers, smaller the more of them meet in a sum; biases are 0."""
    chance = random.Random(f"weights {seed}")  # noqa: S311  # no secrets
    found = array("f")
    for rows, columns in ((shape.inputs, shape.hidden), (shape.hidden, shape.classes)):
        bound = (3 / rows) ** 0.5
        found.extend(bound * (2 * chance.random() - 1) for _ in range(rows * columns))
        found.extend(0.0 for _ in range(columns))
    return found.tobytes()


def batches(shape: Shape, size: int, seed: int) -> list[tuple[bytes, bytes]]:
    """Images and labels of some batches: each class is a pattern under noise of the same strength."""
    chance = random.Random(f"data {seed}")  # noqa: S311
    patterns = [chance.getrandbits(8 * shape.inputs).to_bytes(shape.inputs, "little") for _ in range(shape.classes)]
    found = []
    for _ in range(KINDS):
        labels, images = array("i"), array("f")
        for _ in range(size):
            label = int(chance.random() * shape.classes)
            noise = chance.getrandbits(8 * shape.inputs).to_bytes(shape.inputs, "little")
            labels.append(label)
            images.extend((a + b) / 512 - 0.5 for a, b in zip(patterns[label], noise))
        found.append((images.tobytes(), labels.tobytes()))
    return found


def blocks(count: int, size: int) -> int:
    """That many blocks hold them."""
    return (count + size - 1) // size


class Net:
    """The network on a device, which has `rows` of the `all_rows` images of each batch."""

    def __init__(self, gpu: Gpu, shape: Shape, rows: int, all_rows: int, weights: bytes) -> None:
        """Take its memory and prepare its launches."""
        gpu.use()
        self.gpu, self.shape, self.rows = gpu, shape, rows
        self.weights, self.moved, self.gradient = (gpu.alloc(shape.weights * FLOAT) for _ in range(3))
        self.images, self.labels = gpu.alloc(rows * shape.inputs * FLOAT), gpu.alloc(rows * FLOAT)
        self.hidden, self.hidden_back = (gpu.alloc(rows * shape.hidden * FLOAT) for _ in range(2))
        self.logits, self.logits_back = (gpu.alloc(rows * shape.classes * FLOAT) for _ in range(2))
        self.losses, self.loss = gpu.alloc(rows * FLOAT), gpu.alloc(FLOAT)
        self.host, self.loss_host = Pinned(gpu.cuda, rows * (shape.inputs + 1) * FLOAT), Pinned(gpu.cuda, FLOAT)
        self.answers = Pinned(gpu.cuda, rows * shape.classes * FLOAT)
        gpu.cuda.cuCtxSynchronize()  # memory is zero before its stream, which waits for no other, goes on
        self.put(self.weights, weights)
        self._prepare(all_rows)

    def _gemm(self, a: object, b: object, c: object, shape: tuple[int, int, int], steps: tuple[int, ...]) -> Launch:
        """C of `shape` rows, columns and depth; steps: a's row, a's along the depth, b's along it, b's column."""
        grid = blocks(shape[1], TILE), blocks(shape[0], TILE)
        return self.gpu.launcher("gemm", grid, (TILE, TILE), a, b, c, *map(ctypes.c_uint, (*shape, *steps)))

    def _line(self, name: str, count: int, *values: object) -> Launch:
        return self.gpu.launcher(name, (blocks(count, LINE), 1), (LINE, 1), *values)

    def _prepare(self, all_rows: int) -> None:
        s, n, number = self.shape, self.rows, ctypes.c_uint
        places = [0, s.inputs * s.hidden, (s.inputs + 1) * s.hidden, (s.inputs + 1) * s.hidden + s.hidden * s.classes]
        w1, b1, w2, b2 = (ctypes.c_uint64(self.weights.value + at * FLOAT) for at in places)
        g1, gb1, g2, gb2 = (ctypes.c_uint64(self.gradient.value + at * FLOAT) for at in places)
        yes, no, h, c = ctypes.c_int(1), ctypes.c_int(0), s.hidden, s.classes
        self._forward = [
            self._gemm(self.images, w1, self.hidden, (n, h, s.inputs), (s.inputs, 1, h, 1)),
            self._line("add_bias", n * h, self.hidden, b1, number(n), number(h), yes),
            self._gemm(self.hidden, w2, self.logits, (n, c, h), (h, 1, c, 1)),
            self._line("add_bias", n * c, self.logits, b2, number(n), number(c), no),
        ]
        shape = number(n), number(c), number(all_rows)
        self._backward = [
            self._line("softmax_loss", n, self.logits, self.labels, self.logits_back, self.losses, *shape),
            self.gpu.launcher("sum_up", (1, 1), (LINE, 1), self.losses, self.loss, number(n)),
            self._gemm(self.hidden, self.logits_back, g2, (h, c, n), (1, h, c, 1)),
            self._line("sum_columns", c, self.logits_back, gb2, number(n), number(c)),
            self._gemm(self.logits_back, w2, self.hidden_back, (n, h, c), (c, 1, 1, c)),
            self._line("relu_back", n * h, self.hidden_back, self.hidden, number(n * h)),
            self._gemm(self.images, self.hidden_back, g1, (s.inputs, h, n), (1, s.inputs, h, 1)),
            self._line("sum_columns", h, self.hidden_back, gb1, number(n), number(h)),
        ]

    def forward(self, images: bytes, labels: bytes) -> None:
        """Take a batch in and run it through."""
        self.gpu.use()
        size, total = self.rows * self.shape.inputs * FLOAT, self.rows * FLOAT
        self.host.write(images + labels)
        self.gpu.take(self.images, self.host, size)
        self.gpu.take(self.labels, self.host, total, offset=size)
        for launch in self._forward:
            launch()

    def backward(self) -> None:
        """The loss of the batch, and the gradient."""
        for launch in self._backward:
            launch()

    def updater(self, rate: float, keep: float) -> Launch:
        """A launch that takes the gradient in."""
        count = ctypes.c_uint(self.shape.weights)
        values = self.weights, self.moved, self.gradient, count, ctypes.c_float(rate), ctypes.c_float(keep)
        return self._line("update", self.shape.weights, *values)

    def adder(self, more: object) -> Launch:
        """A launch that adds another device's gradient to this one's."""
        return self._line("add", self.shape.weights, self.gradient, more, ctypes.c_uint(self.shape.weights))

    def stray(self) -> None:
        """Write to an address that no memory has; the device, or what stands for it, says so at the next call."""
        self.gpu.use()
        nowhere, one = ctypes.c_uint64(NOWHERE), ctypes.c_uint(1)
        self._line("add", 1, nowhere, nowhere, one)()

    def put(self, block: object, data: bytes) -> None:
        """Bytes of the host into memory of the device."""
        self.gpu.use()
        host = Pinned(self.gpu.cuda, len(data))
        host.write(data)
        self.gpu.take(block, host, len(data))
        self.gpu.wait()
        self.gpu.cuda.cuMemFreeHost(ctypes.c_void_p(host.address))

    def bytes_of(self, block: object, size: int) -> bytes:
        """Memory of the device, for the host."""
        self.gpu.use()
        host = Pinned(self.gpu.cuda, size)
        self.gpu.give(host, block, size)
        self.gpu.wait()
        found = host.read(size)
        self.gpu.cuda.cuMemFreeHost(ctypes.c_void_p(host.address))
        return found
