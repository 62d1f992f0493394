"""Judging a metric over all nodes at once: what passes is kept as columns, the rest is judged one by one.

Of ten thousand nodes nearly all pass. Whether they do is decided from the columns of the metric; a judgement that
passes is four numbers here, and made when somebody asks for it, equal to the one that judging/values.py makes. What
may not pass, was repeated or has samples that cannot be is left to that, measurement by measurement.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from operator import itemgetter

from validation.analysis.stats import median_ranks
from validation.judging.case_columns import CaseColumns
from validation.model import Bound, Measurement
from validation.model.judgement_columns import Passed
from validation.model.sample_columns import Column
from validation.rules.bounds import CEILING_SLACK

FLEET = 100
"""Measurements of a criterion below which each is judged by itself, which takes less than a hundredth of a second."""


@dataclass(frozen=True)
class Asked:
    """What the samples of each measurement must be to pass: `bound`, from `least` to `most` each, and how many of
    them, one number for all measurements or one for each.
    """

    metric: str
    unit: str
    bound: Bound
    least: float
    most: float
    count: int | Sequence[int]


@dataclass(frozen=True)
class _Rows:
    """The samples of each line of a column: least, ends of the median's interval, median, greatest, and how many."""

    least: Sequence[float]
    low: Sequence[float]
    value: Sequence[float]
    high: Sequence[float]
    most: Sequence[float]
    count: Sequence[int]


def passed(stored: CaseColumns, served: Sequence[Measurement], asked: Asked) -> Passed | None:
    """Which of the measurements pass for certain; None where none of them does."""
    found: Passed | None = None
    for columns, lines in stored.lines(served):
        column = columns.only(asked.metric, asked.unit)
        # of a number that is none, what is greater and what is less would hang on the order
        if column is None or not column.lines or not math.isfinite(sum(column.values)):
            continue
        mine = _of_part(column, lines, asked)
        found = mine if found is None else _joined(found, mine)
    return found if found is not None and any(found.good) else None


def _of_part(column: Column, lines: array[int], asked: Asked) -> Passed:
    rows = _rows(column)
    good = _good(rows, asked)
    size = len(rows.value)
    if column.lines == lines:
        mine = Passed(good, _doubles(rows.value), _doubles(rows.low), _doubles(rows.high), _counts(rows.count))
    else:
        row_of = dict(zip(column.lines, range(size), strict=True))
        at = list(map(row_of.get, lines, repeat(size)))  # behind the last one: it has no row
        good.append(0)
        value, low, high = (array("d", map([*part, 0.0].__getitem__, at)) for part in (rows.value, rows.low, rows.high))
        count = array("I", map([*rows.count, 0].__getitem__, at))
        mine = Passed(bytearray(map(good.__getitem__, at)), value, low, high, count)
    least = repeat(asked.count) if isinstance(asked.count, int) else asked.count
    if isinstance(asked.count, int) and min(rows.count) >= asked.count:
        return mine
    enough = [good and count >= wanted for good, count, wanted in zip(mine.good, mine.samples, least, strict=False)]
    return Passed(bytearray(enough), mine.value, mine.low, mine.high, mine.samples)


def _joined(one: Passed, two: Passed) -> Passed:
    """Of two parts, of which no measurement is in both."""

    def doubles(mine: array[float], other: array[float]) -> array[float]:
        return array("d", [b if right else a for a, b, right in zip(mine, other, two.good, strict=True)])

    counts = array("I", [b if right else a for a, b, right in zip(one.samples, two.samples, two.good, strict=True)])
    good = bytearray(a or b for a, b in zip(one.good, two.good, strict=True))
    return Passed(good, doubles(one.value, two.value), doubles(one.low, two.low), doubles(one.high, two.high), counts)


def _doubles(values: Sequence[float]) -> array[float]:
    return values if isinstance(values, array) else array("d", values)


def _counts(values: Sequence[int]) -> array[int]:
    return values if isinstance(values, array) else array("I", values)


@lru_cache(maxsize=16)
def _same(each: int, size: int) -> array[int]:
    return array("I", [each]) * size


@lru_cache(maxsize=16)
def _steps(each: int, size: int) -> array[int]:
    return array("I", range(each, each * size + 1, each))


def _rows(column: Column) -> _Rows:
    """All lines at once where each has as many samples."""
    values, ends = column.values, column.ends
    size = len(ends)
    each, rest = divmod(len(values), size) if size else (0, 0)
    if each and not rest and ends == _steps(each, size):
        if each == 1:
            return _Rows(values, values, values, values, values, _same(each, size))
        rows = list(map(sorted, zip(*[iter(values)] * each, strict=True)))
        low, high = median_ranks(each)
        return _Rows(
            _of(rows, 0), _of(rows, low), _middles(rows, each), _of(rows, high), _of(rows, each - 1), _same(each, size)
        )
    rows = [sorted(values[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    ranks = [median_ranks(len(row)) for row in rows]
    return _Rows(
        [row[0] for row in rows],
        [row[low] for row, (low, _) in zip(rows, ranks, strict=True)],
        [_middles((row,), len(row))[0] for row in rows],
        [row[high] for row, (_, high) in zip(rows, ranks, strict=True)],
        [row[-1] for row in rows],
        [len(row) for row in rows],
    )


def _of(rows: Sequence[Sequence[float]], rank: int) -> array[float]:
    return array("d", map(itemgetter(rank), rows))


def _middles(rows: Sequence[Sequence[float]], count: int) -> Sequence[float]:
    half, odd = divmod(count, 2)
    return _of(rows, half) if odd else array("d", [(row[half - 1] + row[half]) / 2 for row in rows])


def _good(rows: _Rows, asked: Asked) -> bytearray:
    """Which rows are within all limits (1)."""
    bound, size = asked.bound, len(rows.value)
    sides = [(rows.least, asked.least, rows.most, asked.most)]
    if bound.equal is not None:
        sides.append((rows.least, float(bound.equal), rows.most, float(bound.equal)))
    elif bound.maximum is not None:
        sides.append((rows.value, math.ulp(0.0), rows.high, bound.maximum))
    elif bound.floor is not None:
        ceiling = math.inf if bound.ceiling is None else bound.ceiling * CEILING_SLACK
        sides.append((rows.low, bound.floor, rows.value, ceiling))
    else:
        return bytearray(size)
    good = bytearray(b"\1") * size
    for lower, floor, upper, top in sides:
        if min(lower) < floor or max(upper) > top:  # looked through again for which
            good = bytearray(was and floor <= a and b <= top for was, a, b in zip(good, lower, upper, strict=True))
    return good
