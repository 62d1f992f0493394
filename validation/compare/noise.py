"""Whether two runs differ by more than noise: one figure by its samples, and many figures at once. Pure.

A comparison has dozens of figures or thousands, and each by itself would be called changed once in twenty times though
nothing changed. So two things are added to what the samples say:

- What runs differ by. Equals of a criterion (the pairs of a fabric) are measured anew, and their changes scatter by
  more than the samples of one run show. That scatter is estimated from the changes themselves, by Qn (Rousseeuw and
  Croux, Alternatives to the median absolute deviation, 1993), which half of the equals may leave without harm: those
  behind a port that became slow are not taken for noise.
- How many figures were looked at. Holm's correction (1979) holds the chance of any false alarm in the whole comparison
  at ALPHA, however the figures depend on each other, and pairs that share a port do. Benjamini and Hochberg's would
  find more, and bounds only the share of false ones among the alarms: one alarm here ends a maintenance window.

A change that all equals share alike is not called noise by this: two runs cannot tell it from an upgrade's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from statistics import NormalDist, median

from validation.analysis.chance import EQUALS, QN_EFFICIENCY, chance, holm, qn_of_many
from validation.analysis.stats import bootstrap_medians, interval
from validation.compare.model import NoiseName

SMALL = 0.03
"""A change of less than this share is called small even where the samples' intervals part: the samples of one run do
not show how runs differ from each other. Project default, provisional; the same share that criterion tn.short
allows."""

LEAST = 5
"""Samples that each side needs for an interval."""

ALPHA = 0.01
"""Chance of any false alarm among all figures of a comparison in which nothing changed. Project default: a site that is
validated every night hears of nothing once in a hundred nights."""


@dataclass(frozen=True)
class Shift:
    """Relative change (0.1 = 10 % more) with the 95 % interval that the samples give it, and what that means.

    `samples` is the number of the side that has fewer. Of many figures at once also `p`, the chance of such a change
    though nothing changed, corrected for their number, and `between`, what runs differ by (one standard deviation; 0:
    not more than the samples show; None: there are too few equals to say).
    """

    change: float | None
    low: float | None
    high: float | None
    noise: NoiseName
    samples: int = 0
    p: float | None = None
    between: float | None = None


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
    return Shift(change, low, high, _name(change, low, high), min(len(old), len(new)))


Value = tuple[float, float | None, float | None]
"""A value with the ends of its interval."""


def shift_of_intervals(old: Value, new: Value, samples: int = LEAST) -> Shift:
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
    return Shift(change, low, high, _name(change, low, high), samples)


# --- many figures at once --------------------------------------------------------------------------------------


def _error(shift: Shift) -> float:
    """Standard error of a change by its interval, of the side that looks towards no change."""
    assert shift.change is not None
    near = shift.low if shift.change > 0 else shift.high
    assert near is not None
    return abs(shift.change - near) / NormalDist().inv_cdf(0.975)


def _p(shift: Shift, between: float | None, typical: float, equals: int) -> float:
    """Chance of this change by itself. `between` and `typical` error are those of its equals."""
    assert shift.change is not None
    own, added = _error(shift), 0.0
    if between is not None:
        added = sqrt(max(0.0, between**2 - typical**2))
    error = hypot(own, added)
    if error == 0:
        return 0.0 if shift.change else 1.0
    # Welch and Satterthwaite: what is known of either part, by its weight
    parts = own**4 / (shift.samples - 1) + (added**4 / (QN_EFFICIENCY * (equals - 1)) if added else 0.0)
    return chance(shift.change / error, error**4 / parts if parts else float(shift.samples))


def settled(shifts: Iterable[tuple[Hashable, Shift]]) -> list[Shift]:
    """All figures of a comparison, each with the group of equals that it belongs to: what is beyond noise now that all
    are looked at. What has no interval stays as it is.
    """
    pairs = list(shifts)
    groups: dict[Hashable, list[Shift]] = {}
    for group, shift in pairs:
        if _tested(shift):
            groups.setdefault(group, []).append(shift)
    scatter = {group: _scatter(equals) for group, equals in groups.items()}
    tested = [(index, group, shift) for index, (group, shift) in enumerate(pairs) if _tested(shift)]
    chances = holm([_p(shift, *scatter[group], len(groups[group])) for _, group, shift in tested])
    found = [shift for _, shift in pairs]
    for (index, group, shift), p in zip(tested, chances, strict=True):
        assert shift.change is not None
        noise: NoiseName = "within" if p >= ALPHA else "small" if abs(shift.change) < SMALL else "beyond"
        found[index] = replace(shift, noise=noise, p=p, between=scatter[group][0])
    return found


def _tested(shift: Shift) -> bool:
    return shift.change is not None and shift.low is not None and shift.high is not None


def _scatter(equals: Sequence[Shift]) -> tuple[float | None, float]:
    """How far the changes of equals scatter, None of few; and the error that is typical of one of them."""
    typical = median(map(_error, equals))
    if len(equals) < EQUALS:
        return None, typical
    return qn_of_many([shift.change or 0.0 for shift in equals]), typical
