"""Whether two sets of samples differ by more than noise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from statistics import median

from validation.analysis.stats import bootstrap_medians, interval
from validation.compare.model import NoiseName

SMALL = 0.03
"""A change of less than this share is called small even where the samples' intervals part: the samples of one run do
not show how runs differ from each other. Project default, provisional; the same share that criterion tn.short
allows."""

LEAST = 5
"""Samples that each side needs for an interval."""


@dataclass(frozen=True)
class Shift:
    """Relative change (0.1 = 10 % more) with its 95 % interval, and what that means."""

    change: float | None
    low: float | None
    high: float | None
    noise: NoiseName


def _name(change: float, low: float, high: float) -> NoiseName:
    if low <= 0 <= high:
        return "within"
    return "small" if abs(change) < SMALL else "beyond"


def shift_of_samples(old: Sequence[float], new: Sequence[float]) -> Shift:
    """The change of the median, with the bootstrap interval of the ratio of medians."""
    before, after = median(old), median(new)
    if before == after:
        return Shift(0.0, None, None, "within")
    if before == 0:
        return Shift(None, None, None, "unknown")
    change = after / before - 1
    if min(len(old), len(new)) < LEAST:
        return Shift(change, None, None, "unknown")
    pairs = zip(bootstrap_medians(new, stream=1), bootstrap_medians(old, stream=2), strict=True)
    ratios = [a / b - 1 for a, b in pairs if b]
    low, high = interval(ratios)
    return Shift(change, low, high, _name(change, low, high))


Value = tuple[float, float | None, float | None]
"""A value with the ends of its interval."""


def shift_of_intervals(old: Value, new: Value) -> Shift:
    """The same from two values and their intervals, for what is computed from several measurements.

    The interval of the difference is the one of Zou and Donner (2008, MOVER), divided by the old value.
    """
    before, after = old[0], new[0]
    if before == after:
        return Shift(0.0, None, None, "within")
    if before == 0:
        return Shift(None, None, None, "unknown")
    change = after / before - 1
    if old[1] is None or old[2] is None or new[1] is None or new[2] is None:
        return Shift(change, None, None, "unknown")
    if old[1] == old[2] or new[1] == new[2]:  # a spread is one figure of a job: nothing says how far it varies itself
        return Shift(change, None, None, "unknown")
    difference = after - before
    low = (difference - hypot(after - new[1], old[2] - before)) / abs(before)
    high = (difference + hypot(new[2] - after, before - old[1])) / abs(before)
    return Shift(change, low, high, _name(change, low, high))
