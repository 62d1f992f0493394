"""Robust statistics of a handful of samples, the same on every run: the bootstrap's seed is fixed."""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 20190207  # any number; fixed so that judging the same results twice gives the same verdict


@dataclass(frozen=True)
class Summary:
    """Median, median absolute deviation (unscaled) and the bootstrap interval of the median, in the samples' unit."""

    median: float
    mad: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Half-width of the interval over the median."""
        return (self.high - self.low) / 2 / self.median if self.median else float("inf")


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled."""
    middle = statistics.median(values)
    return statistics.median(abs(v - middle) for v in values)


@functools.lru_cache(maxsize=256)
def _middles(count: int, stream: int) -> tuple[tuple[int, int], ...]:
    """Ranks of the two middle values of each resample of `count` values.

    The median of a resample depends on the resampled ranks alone, so they are drawn once per sample size and serve
    every sample of that size: the ordinary bootstrap, fast enough for the pair matrix of a fleet.
    """
    generator = random.Random(_SEED + stream)  # noqa: S311 - statistics, not secrets
    ranks = range(count)
    pairs = []
    for _ in range(RESAMPLES):
        drawn = sorted(generator.choices(ranks, k=count))
        pairs.append((drawn[(count - 1) // 2], drawn[count // 2]))
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
    low, high = interval(bootstrap_medians(values))
    return Summary(median=statistics.median(values), mad=mad(values), low=low, high=high, count=len(values))
