"""What the report asks of all judgements of a criterion, answered from columns where they stand in some.

A fleet has hundreds of thousands of judgements, and nearly all of them pass: making each of them for every question
took two thirds of the time of a report. Every answer is the same as that of the judgements one by one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from validation.model import Bound, Judgement, VerdictName
from validation.model.judgement import others
from validation.model.judgement_columns import Alike


def values(judgements: Sequence[Judgement]) -> Sequence[float]:
    """The values that there are, in the order of the judgements."""
    if isinstance(judgements, Alike):
        column, odd = judgements.passed.value, judgements.odd
        if not odd:
            return column
        every = (odd[at].value if at in odd else value for at, value in enumerate(column))
        return [value for value in every if value is not None]
    return [j.value for j in judgements if j.value is not None]


def verdicts(judgements: Sequence[Judgement]) -> Counter[VerdictName]:
    """How many have which verdict."""
    found = Counter(j.verdict for j in others(judgements))
    found["pass"] += _alike(judgements)
    return +found


def bounds(judgements: Sequence[Judgement]) -> set[Bound]:
    """The bounds that were applied."""
    found = {j.bound for j in others(judgements) if j.bound is not None}
    if isinstance(judgements, Alike) and _alike(judgements):
        found.add(judgements.bound)
    return found


def units(judgements: Sequence[Judgement]) -> set[str]:
    """The units of the values that there are."""
    found = {j.bound.unit for j in others(judgements) if j.value is not None and j.bound is not None}
    if isinstance(judgements, Alike) and _alike(judgements):
        found.add(judgements.bound.unit)
    return found


def samples(judgements: Sequence[Judgement]) -> set[int]:
    """How many samples are behind the intervals that there are."""
    found = {j.samples for j in others(judgements) if j.low is not None}
    if isinstance(judgements, Alike):
        found.update(count for at, count in enumerate(judgements.passed.samples) if at not in judgements.odd)
    return found


def evidence(judgements: Sequence[Judgement]) -> tuple[str, ...]:
    """The measurements behind them, each once, in the order of the judgements."""
    found: dict[str, None] = {}
    if isinstance(judgements, Alike):
        for at, id_ in enumerate(judgements.things.ids):
            found.update(dict.fromkeys(judgements.odd[at].evidence) if at in judgements.odd else {id_: None})
    else:
        for judgement in judgements:
            found.update(dict.fromkeys(judgement.evidence))
    return tuple(found)


def extreme(judgements: Sequence[Judgement]) -> Iterator[tuple[int, Judgement]]:
    """Judgements with their places: all that do not stand in columns, and of those in columns the first with the least
    value and the first with the greatest. Whatever is decided by verdict and value is decided by one of these.
    """
    if not isinstance(judgements, Alike):
        yield from enumerate(judgements)
        return
    places = set(judgements.odd)
    if _alike(judgements):
        for choose, never in ((min, float("inf")), (max, float("-inf"))):
            column: array[float] = judgements.passed.value
            if judgements.odd:
                column = column[:]
                for at in judgements.odd:
                    column[at] = never
            places.add(column.index(choose(column)))
    for at in sorted(places):
        yield at, judgements[at]


def foremost(judgements: Sequence[Judgement], most: int, order: Callable[[Judgement], int]) -> tuple[Judgement, ...]:
    """The first `most` when sorted by `order`, which hangs on the verdict alone."""
    if isinstance(judgements, Alike):
        passing = (at for at in range(len(judgements)) if at not in judgements.odd)
        kept = sorted([*judgements.odd, *(at for at, _ in zip(passing, range(most), strict=False))])
        judgements = [judgements[at] for at in kept]
    return tuple(sorted(judgements, key=order)[:most])


def _alike(judgements: Sequence[Judgement]) -> int:
    """How many of them stand in columns."""
    return len(judgements) - len(judgements.odd) if isinstance(judgements, Alike) else 0
