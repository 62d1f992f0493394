"""Robust statistics of a handful of samples, the same on every run.

The interval of a median is exact: two of the samples themselves, whose ranks follow from the binomial distribution.
What is computed from two medians, such as their ratio, has a bootstrap interval with a fixed seed. Rates of training
are averages: scaling.py.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20190207  # any number; fixed so that judging the same results twice gives the same verdict


@dataclass(frozen=True)
class Summary:
    """Median, median absolute deviation (unscaled) and interval of the median, in the samples' unit."""

    median: float
    mad: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Half-width of the interval over the median."""
        return (self.high - self.low) / 2 / self.median if self.median else float("inf")


@functools.lru_cache(maxsize=1024)
def median_ranks(count: int) -> tuple[int, int]:
    """Indices (from 0) of the two of `count` ordered samples between which the median lies in CONFIDENCE of all cases.

    Each sample is below the true median with probability 1/2, whatever the distribution: the number of those below is
    binomial. Fewer than 6 samples cannot reach 95 %; their interval is all of them (5: 93.75 %, 3: 75 %, 1: none).
    """
    one_in = round(2 / (1 - CONFIDENCE))  # whole numbers, for 2 ** count is soon beyond any float
    rank, tail = 0, 1  # `tail` of 2 ** count outcomes have at most `rank` samples below the median
    while (tail := tail + math.comb(count, rank + 1)) * one_in <= 2**count:
        rank += 1
    return rank, count - 1 - rank


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled."""
    return _mad(values, statistics.median(values))


def _mad(values: Sequence[float], middle: float) -> float:
    # of ordered values these are one run down and one up, which the sort merges
    return _middle(sorted([abs(v - middle) for v in values]))


def _middle(ordered: Sequence[float]) -> float:
    """The median of values in order."""
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


@functools.lru_cache(maxsize=32)
def _middles(count: int, stream: int) -> tuple[tuple[int, int], ...]:
    """Ranks of the two middle values of each resample of `count` values: the same for all samples of that size.

    The k-th smallest of n uniform draws is Beta(k, n + 1 - k), and the next above it is the smallest of the n - k draws
    left: the middle two are drawn at once, instead of n values that are sorted.
    """
    generator = random.Random(_SEED + stream)  # noqa: S311 - statistics, not secrets
    lower = (count + 1) // 2
    pairs = []
    for _ in range(RESAMPLES):
        first = second = generator.betavariate(lower, count + 1 - lower)
        if count % 2 == 0:
            second += (1 - first) * generator.betavariate(1, count - lower)
        pairs.append((min(int(first * count), count - 1), min(int(second * count), count - 1)))
    return tuple(pairs)


def bootstrap_medians(values: Sequence[float], stream: int = 0) -> list[float]:
    """Medians of RESAMPLES resamples. Different `stream`s are independent of each other."""
    ordered = sorted(values)
    return [(ordered[a] + ordered[b]) / 2 for a, b in _middles(len(ordered), stream)]


def interval(resampled: Sequence[float]) -> tuple[float, float]:
    """The percentile interval that holds CONFIDENCE of the resampled statistic."""
    ordered = sorted(resampled)
    tail = int((1 - CONFIDENCE) / 2 * len(ordered))
    return ordered[tail], ordered[-1 - tail]


def summarize(values: Sequence[float]) -> Summary:
    """Summary of at least one finite value; ValueError for none."""
    if not values:
        raise ValueError("no samples to summarize")
    ordered, count = sorted(values), len(values)
    low, high = median_ranks(count)
    middle = _middle(ordered)
    return Summary(middle, _mad(ordered, middle), ordered[low], ordered[high], count)
