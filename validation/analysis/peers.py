"""Who is unlike the others of a group of equals, by the group's own spread. No I/O.

The middle is the median and the spread the median of absolute deviations, so that up to half of the group may be odd
without moving either. Both are of logarithms: rates and latencies vary by shares of themselves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

LEAST_PEERS = 4
"""In a smaller group nobody can tell the odd one from the others. Project default."""

LEAST_APART = 0.03
"""Nobody closer to the middle than this share is odd, however alike the others are. Project default."""

NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""

SPREADS, OF_FEW, OF_VERY_FEW = 5.0, 40.0, 1200.0
"""So many spreads from the middle one is odd, the second over the number of peers more, and the third over its square:
the spread of few says little of them. Chosen by simulation, so that of groups of 4 to 64 equals with normal noise of
any size at most 1 in 1,000 has somebody odd (tests/unit/test_peers.py)."""


@dataclass(frozen=True)
class Odd:
    """One that is unlike its peers. `apart` is a share of the median, negative below it; `spread` the group's own as a
    share, `spreads` how many of it that is."""

    name: str
    value: float
    median: float
    apart: float
    spread: float
    spreads: float
    worse: bool

    def words(self, unit: str = "") -> str:
        """`40.1 GB/s, 19.8 % below its 31 peers' median 50.0 (their spread 0.6 %)` without the number of peers."""
        side = "below" if self.apart < 0 else "above"
        return (
            f"{self.value:.4g}{' ' + unit if unit else ''}, {abs(self.apart):.1%} {side} the median of its peers "
            f"{self.median:.4g} (their spread {self.spread:.1%})"
        )


def robust_spread(values: list[float]) -> float:
    """Standard deviation as the median absolute deviation tells it; 0.0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = statistics.median(values)
    return NORMAL * statistics.median(abs(v - middle) for v in values)


def odd_ones(values: Mapping[str, float], lower_is_better: bool = False) -> list[Odd]:
    """Those far from their peers' middle on either side, the worst first. Values above 0, else ValueError.

    A better one is told too (`worse` False): it is a fault of the measurement, or of all the others.
    """
    if any(not math.isfinite(v) or v <= 0 for v in values.values()):
        raise ValueError("peers are compared by positive, finite values")
    if len(values) < LEAST_PEERS:
        return []
    logs = {name: math.log(value) for name, value in values.items()}
    middle = statistics.median(logs.values())
    spread = robust_spread(list(logs.values()))
    limit = max(math.log1p(LEAST_APART), (SPREADS + OF_FEW / len(values) + OF_VERY_FEW / len(values) ** 2) * spread)
    found = []
    for name, log in logs.items():
        if abs(log - middle) > limit:
            apart = math.expm1(log - middle)
            spreads = abs(log - middle) / spread if spread else math.inf
            worse = (apart > 0) == lower_is_better
            found.append(Odd(name, values[name], math.exp(middle), apart, spread, spreads, worse))
    return sorted(found, key=lambda o: (not o.worse, -abs(o.apart), o.name))
