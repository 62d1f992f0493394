"""Matrix products of whole numbers that come out exactly, and their digests as whole-number arithmetic has them.

Operands are so small that every partial sum, in whatever order, is a whole number that the accumulator holds exactly:
below 2^24 for fp32 (and tf32, bf16, fp16, which are summed up in fp32), below 2^13 for fp8, for its accumulators keep
fewer bits. The one rounding is that of the result to its type, and it is to the nearest, ties to even (IEEE 754). So
the result is the same on every device that computes right, bit by bit, whatever kernel it takes.

A row of A repeats after ROWS rows and a column of B after COLUMNS columns, two primes, so that the product is known
from ROWS x COLUMNS sums, and tiles of a kernel hold different parts of it. Standard library only.
"""

from __future__ import annotations

import hashlib
import struct
from functools import cache
from operator import mul
from typing import NamedTuple

ROWS, COLUMNS = 61, 67
GPU_SIZE, CPU_SIZE = 4096, 256  # rows and columns of the product
_A, _B = 2654435761, 2246822519  # odd multipliers that spread the numbers: D. Knuth's and one of xxHash's


class Shape(NamedTuple):
    """Operands of a precision are whole numbers from -limit to limit; `depth` products are summed up."""

    limit: int
    depth: int
    out: str  # type of the result


SHAPES = {
    "fp32": Shape(63, 4096, "fp32"),
    "tf32": Shape(63, 4096, "fp32"),
    "bf16": Shape(16, 4096, "bf16"),
    "fp16": Shape(16, 4096, "fp16"),
    "fp8": Shape(2, 1024, "bf16"),
}


@cache
def operands(precision: str) -> tuple[list[list[int]], list[list[int]]]:
    """The ROWS rows of A, and the rows of B with COLUMNS columns."""
    limit, depth, _ = SHAPES[precision]

    def number(at: int, by: int) -> int:
        return ((at * by + 1013904223) % (1 << 32) >> 13) % (2 * limit + 1) - limit

    left = [[number(i * depth + k, _A) for k in range(depth)] for i in range(ROWS)]
    right = [[number(k * COLUMNS + j, _B) for j in range(COLUMNS)] for k in range(depth)]
    return left, right


@cache
def sums(precision: str) -> list[list[int]]:
    """The product of the two, in whole numbers."""
    left, right = operands(precision)
    columns = list(zip(*right))
    return [[sum(map(mul, row, column)) for column in columns] for row in left]


def written(number: int, out: str) -> bytes:
    """A whole number below 2^24 as that type has it, little-endian."""
    if out == "fp16":
        return struct.pack("<e", number)
    bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    if out == "fp32":
        return struct.pack("<I", bits)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


@cache
def reference(precision: str, size: int) -> str:
    """SHA-256 of the product of `size` rows and columns, row by row."""
    out = SHAPES[precision].out
    rows = []
    for row in sums(precision):
        words = [written(number, out) for number in row]
        rows.append(b"".join((words * (size // COLUMNS + 1))[:size]))
    total = hashlib.sha256()
    for i in range(size):
        total.update(rows[i % ROWS])
    return total.hexdigest()
