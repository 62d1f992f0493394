"""Rate and scaling efficiency of a training job, by the statistic of the published figures.

Those are averages over the measured steps (Dell whitepaper 2019, section 4.1.1): all images over all the time. A median
of steps would hide the ones in which the job stood still.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from validation.analysis.stats import CONFIDENCE

_TWO_SIDED = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Efficiency:
    """Ratio (1 = every rank as fast as one alone) with its 95 % interval, and what it was computed from."""

    value: float
    low: float
    high: float
    rate: float  # images/s of the whole job
    single: float  # images/s of one rank


def average_rate(rates: Sequence[float]) -> float:
    """All images over all the time, of steps of one size at these rates: their harmonic mean, in the same unit.

    ValueError for an empty series, and for a rate that is not above zero.
    """
    if not rates or min(rates) <= 0:
        raise ValueError("an average rate needs samples above zero")
    return statistics.harmonic_mean(rates)


def interval(rates: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of `average_rate`, of the mean time of a step; ValueError as there."""
    rate = average_rate(rates)
    wide = math.exp(_TWO_SIDED * _relative_error(rates))
    return rate / wide, rate * wide


def efficiency(many: Sequence[float], single: Sequence[float], ranks: int) -> Efficiency:
    """measured(N) / (N x measured(1)), average rates in images/s (Dell whitepaper 2019, figures 26 and 28).

    `many` are samples of the job of `ranks` ranks, `single` of the job of one. The interval is that of a ratio of two
    means, of the times of a step. ValueError for empty series, and for rates that are not above zero.
    """
    if ranks < 1 or not many or not single or min(*many, *single) <= 0:
        raise ValueError("scaling needs samples of both jobs, with rates above zero")
    rate, alone = average_rate(many), average_rate(single)
    value = rate / (ranks * alone)
    wide = math.exp(_TWO_SIDED * math.hypot(_relative_error(many), _relative_error(single)))
    return Efficiency(value=value, low=value / wide, high=value * wide, rate=rate, single=alone)


def _relative_error(rates: Sequence[float]) -> float:
    """Standard error of the mean time of a step, over that mean; 0 of a single step."""
    if len(rates) < 2:
        return 0.0
    times = [1 / rate for rate in rates]
    mean = statistics.fmean(times)
    return statistics.stdev(times, mean) / math.sqrt(len(times)) / mean
