"""Scaling efficiency of a training job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from validation.analysis.stats import bootstrap_medians, interval


@dataclass(frozen=True)
class Efficiency:
    """Ratio (1 = every rank as fast as one alone) with its 95 % bootstrap interval, and what it was computed from."""

    value: float
    low: float
    high: float
    rate: float  # images/s of the whole job
    single: float  # images/s of one rank


def efficiency(many: Sequence[float], single: Sequence[float], ranks: int) -> Efficiency:
    """measured(N) / (N x measured(1)), medians of images/s (Dell whitepaper 2019, figures 26 and 28).

    `many` are samples of the job of `ranks` ranks, `single` of the job of one. ValueError for empty or zero series.
    """
    if ranks < 1 or not many or not single or median(single) <= 0:
        raise ValueError("scaling needs samples of both jobs, with a rate above zero")
    ratios = [
        n / (ranks * one)
        for n, one in zip(bootstrap_medians(many, stream=1), bootstrap_medians(single, stream=2), strict=True)
        if one > 0
    ]
    low, high = interval(ratios)
    return Efficiency(
        value=median(many) / (ranks * median(single)), low=low, high=high, rate=median(many), single=median(single)
    )
