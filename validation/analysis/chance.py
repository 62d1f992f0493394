"""Many figures at once: how they scatter, how likely a change is by chance, and by chance among how many. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import copysign, log1p, sqrt
from statistics import NormalDist

EQUALS = 6
"""Values from which it is estimated how far equals scatter; fewer do not show it. Project default."""

MOST = 200
"""Of more values than that every n-th is taken where all pairs of them are looked at."""

_QN = 2.2219
_QN_SMALL = {6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
QN_EFFICIENCY = 0.82
"""Of Qn at the normal distribution, all three: Rousseeuw and Croux (1993), and Croux and Rousseeuw (1992) of few."""


def qn(values: Sequence[float]) -> float:
    """Standard deviation of at least EQUALS values by the distances between them: a quarter of these count, the small
    ones. ValueError for fewer values.
    """
    count = len(values)
    if count < EQUALS:
        raise ValueError(f"{count} values say nothing of how they scatter; {EQUALS} do")
    half = count // 2 + 1
    distances = sorted(abs(a - b) for a, b in combinations(values, 2))
    few = _QN_SMALL.get(count) or count / (count + (1.4 if count % 2 else 3.8))
    return _QN * few * distances[half * (half - 1) // 2 - 1]


def qn_of_many(values: Sequence[float]) -> float:
    """The same of about MOST of them, evenly chosen, where there are more: its distances are as many as pairs."""
    return qn(values[:: -(-len(values) // MOST)])


def chance(t: float, freedom: float) -> float:
    """Chance of a Student t as far from 0 as this, on either side; Wallace's normal deviate (1959) in its place."""
    z = (8 * freedom + 1) / (8 * freedom + 3) * sqrt(freedom * log1p(t * t / freedom))
    return 2 * NormalDist().cdf(-copysign(z, 1))


def quantile(one_sided: float, freedom: float) -> float:
    """The Student t that is passed on one side with this chance, which is below 1/2: `chance` the other way round."""
    low, high = 0.0, 1.0
    while chance(high, freedom) > 2 * one_sided:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle, freedom) > 2 * one_sided else (low, middle)
    return high


def holm(chances: Sequence[float]) -> list[float]:
    """The chances corrected for their number, in the same order (Holm 1979): below a level in any of them no oftener
    than that level says."""
    found, worst = [0.0] * len(chances), 0.0
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        worst = max(worst, min(1.0, (len(chances) - rank) * chances[index]))
        found[index] = worst
    return found
