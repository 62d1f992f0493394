"""What elastic-ai-train computes, in Python: numbers of 32 bits, each operation rounded by itself, in the same order.

A Python number is one of 64 bits; of two numbers of 32 bits the sum, product and quotient, rounded to 64 and then to 32
bits, are those rounded to 32 bits at once (Figueroa, "When is double rounding innocuous?", 1995: 53 >= 2 * 24 + 2).
"""

from __future__ import annotations

import struct
from array import array

from toolkit.lease.programs.train import KEEP, RATE
from toolkit.lease.programs.train_net import KINDS, Shape, batches, first_weights


def f(value: float) -> float:
    """Rounded to 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("i", struct.pack("f", value))[0])


def _float(bits: int) -> float:
    return float(struct.unpack("f", struct.pack("i", bits))[0])


def power(x: float) -> float:
    """e^x of x <= 0."""
    if x < -87:
        return 0.0
    twos = int(f(f(x * f(1.44269504)) - 0.5))
    rest = f(f(x - f(twos * f(0.693359375))) + f(twos * f(2.12194440e-4)))
    total = 1.0
    for i in range(8, 0, -1):
        total = f(1 + f(f(total * rest) / i))
    return f(total * _float((twos + 127) << 23))


def logarithm(x: float) -> float:
    """ln x of x >= 1."""
    bits = _bits(x)
    twos, m = (bits >> 23) - 127, _float((bits & 0x7FFFFF) | 127 << 23)
    if m > f(1.41421356):
        m, twos = f(m * 0.5), twos + 1
    s = f(f(m - 1) / f(m + 1))
    square, total = f(s * s), 0.0
    for i in range(11, 0, -2):
        total = f(f(total * square) + f(1 / i))
    return f(f(f(2 * s) * total) + f(twos * f(0.69314718)))


def dot(pairs: list[tuple[float, float]]) -> float:
    """The sum of products, from the first on."""
    total = 0.0
    for a, b in pairs:
        total = f(total + f(a * b))
    return total


def tree(values: list[float]) -> float:
    """As 256 threads add them up."""
    part = [0.0] * 256
    for i, value in enumerate(values):
        part[i % 256] = f(part[i % 256] + value)
    half = 128
    while half:
        for i in range(half):
            part[i] = f(part[i] + part[i + half])
        half //= 2
    return part[0]


def trained(shape: Shape, size: int, steps: int, seed: int, gpus: int = 1) -> tuple[list[float], bytes]:
    """Mean losses of the steps, and the weights in the end, as bytes."""
    n, h, c = shape.inputs, shape.hidden, shape.classes
    weights = array("f", first_weights(shape, seed)).tolist()
    moved, losses = [0.0] * shape.weights, []
    b1, w2, b2 = n * h, n * h + h, n * h + h + h * c
    for step in range(steps):
        raw, raw_labels = batches(shape, size, seed)[step % KINDS]
        images, labels = array("f", raw).tolist(), array("i", raw_labels).tolist()
        rows, total, gradient = size // gpus, 0.0, [0.0] * shape.weights
        for gpu in range(gpus):
            x = [images[i * n : (i + 1) * n] for i in range(gpu * rows, (gpu + 1) * rows)]
            mine = labels[gpu * rows : (gpu + 1) * rows]
            hidden = [
                [max(0.0, f(dot([(r[k], weights[k * h + j]) for k in range(n)]) + weights[b1 + j])) for j in range(h)]
                for r in x
            ]
            logits = [
                [f(dot([(r[k], weights[w2 + k * c + j]) for k in range(h)]) + weights[b2 + j]) for j in range(c)]
                for r in hidden
            ]
            back, each = [], []
            for row, label in zip(logits, mine, strict=True):
                most, sums = max(row), 0.0
                for value in row:
                    sums = f(sums + power(f(value - most)))
                parts = [f(power(f(value - most)) / sums) for value in row]
                back.append([f(f(part - (1.0 if j == label else 0.0)) / size) for j, part in enumerate(parts)])
                each.append(f(logarithm(sums) - f(row[label] - most)))
            total += tree(each)
            below = [
                [dot([(r[k], weights[w2 + j * c + k]) for k in range(c)]) if seen[j] > 0 else 0.0 for j in range(h)]
                for r, seen in zip(back, hidden, strict=True)
            ]
            g = [dot([(x[i][k], below[i][j]) for i in range(rows)]) for k in range(n) for j in range(h)]
            g += [dot([(below[i][j], 1.0) for i in range(rows)]) for j in range(h)]
            g += [dot([(hidden[i][k], back[i][j]) for i in range(rows)]) for k in range(h) for j in range(c)]
            g += [dot([(back[i][j], 1.0) for i in range(rows)]) for j in range(c)]
            gradient = [f(a + b) for a, b in zip(gradient, g, strict=True)]
        losses.append(total / size)
        moved = [f(f(m * f(KEEP)) + g) for m, g in zip(moved, gradient, strict=True)]
        weights = [f(w - f(m * f(RATE))) for w, m in zip(weights, moved, strict=True)]
    return losses, array("f", weights).tobytes()
