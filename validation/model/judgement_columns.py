"""Judgements that pass alike, of a fleet: kept and written as columns, made when somebody asks for one.

In verdict.json a column is a list of numbers, one for each of the nodes of its table in their order; at the places that
are told one by one it has null.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, overload

from pydantic import Field, model_validator

from validation.base.counting import number_of
from validation.model.base import Model
from validation.model.judgement import Bound, Judgement, Judgements, Subject

PACKED = 500
"""Judgements of a criterion that passed below which each is written by itself: so many are 0.4 MB."""


class Served(Model):
    """Nodes, and of each the measurement that serves a criterion: the same for many criteria."""

    nodes: tuple[str, ...]
    evidence: tuple[str, ...]

    @model_validator(mode="after")
    def _alike(self) -> Served:
        if len(self.nodes) != len(self.evidence):
            raise ValueError("served: each of the nodes has one measurement")
        return self

    def things(self) -> Things:
        """The same, for judgements."""
        return Things(self.evidence, lambda at: Subject.node(self.nodes[at]), self.nodes)


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Count = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)]


class Columned(Model):
    """Of a criterion: what passed within `bound`, by the nodes of the table `served` of the verdict (from 0). `told`:
    places that are judged by themselves, in the order of the criterion's judgements. `low`, `high`: None where they
    are the median itself.
    """

    served: int
    bound: Bound
    told: tuple[int, ...]
    value: tuple[_Number | None, ...]
    low: tuple[_Number | None, ...] | None
    high: tuple[_Number | None, ...] | None
    samples: _Count | tuple[_Count | None, ...]


def within(bound: Bound, value: float, low: float, high: float) -> str:
    """Why a median with its interval passes, in words."""
    if bound.equal is not None:
        return f"{value:g} {bound.unit}, {float(bound.equal):g} wanted"
    shown = f"{value:.4g} {bound.unit} (95 % interval {low:.4g} to {high:.4g})"
    if bound.maximum is not None:
        return f"{shown}, at most {bound.maximum:g} allowed"
    floor = bound.floor if bound.floor is not None else math.inf
    return f"{shown}, floor {floor:.4g}"


@dataclass(frozen=True)
class Passed:
    """Which of some measurements pass (1), by position; of these the median, its interval, how many samples."""

    good: bytearray
    value: array[float]
    low: array[float]
    high: array[float]
    samples: array[int]


class Things:
    """What the judgements of a criterion are about, in their order, and the measurement of each."""

    def __init__(self, ids: Sequence[str], about: Callable[[int], Subject], nodes: Sequence[str] | None = None) -> None:
        """`nodes`: their names, where that is known already."""
        self.ids, self.about, self._nodes = ids, about, nodes

    @cached_property
    def nodes(self) -> Sequence[str] | None:
        """Their names where all are whole nodes of which nothing more is said, else None."""
        if self._nodes is not None:
            return self._nodes
        abouts = [self.about(at) for at in range(len(self.ids))]
        if all(a.kind == "node" and not a.op and not a.ends[0].port for a in abouts):
            return [a.ends[0].node for a in abouts]
        return None

    def same(self, other: Things) -> bool:
        """Whether the others are about the same."""
        if self is other:
            return True
        if list(self.ids) != list(other.ids):
            return False
        if self.nodes is not None or other.nodes is not None:
            return self.nodes is not None and other.nodes is not None and list(self.nodes) == list(other.nodes)
        return all(self.about(at) == other.about(at) for at in range(len(self.ids)))


class Alike(Judgements):
    """The judgements of a criterion in the order of its measurements: those that pass from columns, and `odd` ones by
    their position.
    """

    def __init__(
        self, criterion: str, bound: Bound, things: Things, passed: Passed, odd: Mapping[int, Judgement]
    ) -> None:
        """All that is not in `odd` passed."""
        self.criterion, self.bound, self.things, self.passed, self.odd = criterion, bound, things, passed, odd

    def __len__(self) -> int:
        """One for each measurement."""
        return len(self.things.ids)

    @overload
    def __getitem__(self, at: int) -> Judgement: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Judgement]: ...
    def __getitem__(self, at: int | slice) -> Judgement | Sequence[Judgement]:
        """The judgement at a position, made anew where it passed."""
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        return self.odd[at] if at in self.odd else self._made(at)

    def __iter__(self) -> Iterator[Judgement]:
        """All, one after another."""
        return (self.odd[at] if at in self.odd else self._made(at) for at in range(len(self)))

    def _made(self, at: int) -> Judgement:
        bound, by = self.bound, self.passed
        value, low, high = by.value[at], by.low[at], by.high[at]
        return Judgement.made(
            self.criterion, self.things.about(at), "pass", "within-bounds", within(bound, value, low, high),
            value, low, high, by.samples[at], None, bound, (self.things.ids[at],),
        )  # fmt: skip

    @cached_property
    def others(self) -> Sequence[Judgement]:
        """Those that were judged by themselves, in their order."""
        return [self.odd[at] for at in sorted(self.odd)]

    @property
    def passing(self) -> Iterator[str]:
        """The measurements of those that passed from columns."""
        return (id_ for at, id_ in enumerate(self.things.ids) if at not in self.odd)

    def __eq__(self, other: object) -> bool:
        """As tuples are; of others like these the columns are compared."""
        if not isinstance(other, Alike) or self.odd.keys() != other.odd.keys():
            return super().__eq__(other)
        return (
            (self.criterion, self.bound, self.odd) == (other.criterion, other.bound, other.odd)
            and self.things.same(other.things)
            and all(self._zeroed(name) == other._zeroed(name) for name in ("value", "low", "high", "samples"))
        )

    def __hash__(self) -> int:
        """As of a tuple."""
        return super().__hash__()

    def _zeroed(self, name: str) -> array[Any]:
        """A column, with 0 where it does not count."""
        column: array[Any] = getattr(self.passed, name)
        if self.odd:
            column = column[:]
            for at in self.odd:
                column[at] = 0
        return column

    def _listed(self, column: array[Any]) -> tuple[Any, ...]:
        """As verdict.json has it."""
        numbers: list[Any] = column.tolist()
        for at in self.odd:
            numbers[at] = None
        return tuple(numbers)

    def columns(self, served: int) -> Columned:
        """As verdict.json has them, without those told one by one: it was all checked when it was judged."""
        value, low, high, samples = (self._zeroed(name) for name in ("value", "low", "high", "samples"))
        counts = {count for at, count in enumerate(samples) if at not in self.odd}
        return Columned.model_construct(
            served=served,
            bound=self.bound,
            told=tuple(sorted(self.odd)),
            value=self._listed(value),
            low=None if low == value else self._listed(low),
            high=None if high == value else self._listed(high),
            samples=counts.pop() if len(counts) == 1 else self._listed(samples),
        )


def packed(judged: Alike, tables: list[Served], of: dict[int, int]) -> Columned | None:
    """Judgements as verdict.json has them, None where each is written by itself. `tables` grows where there is none
    yet for what they are about; `of`: where that of which things stands.
    """
    things = judged.things
    if len(judged) - len(judged.odd) < PACKED or things.nodes is None:
        return None
    if id(things) not in of:
        table = Served(nodes=tuple(things.nodes), evidence=tuple(things.ids))
        if table not in tables:
            tables.append(table)
        of[id(things)] = tables.index(table)
    return judged.columns(of[id(things)])


def unpacked(criterion: str, columned: Columned, tables: Sequence[Things], told: Sequence[Judgement]) -> Alike:
    """The same, read; ValueError where it does not fit. `tables`: what those of the verdict hold."""
    if not 0 <= columned.served < len(tables):
        raise ValueError(f"{criterion}: passed: served: there is no table {columned.served}")
    things = tables[columned.served]
    size, places = len(things.ids), columned.told
    if len(told) != len(places) or sorted(set(places)) != list(places):
        raise ValueError(f"{criterion}: passed: told: {len(told)} judgements are stored one by one, and other places")
    if places and not 0 <= places[0] <= places[-1] < size:
        raise ValueError(f"{criterion}: passed: told: there are {number_of(size, 'node')}")
    odd = dict(zip(places, told, strict=True))
    value = _numbers("d", columned.value, size, odd, criterion)
    low = value if columned.low is None else _numbers("d", columned.low, size, odd, criterion)
    high = value if columned.high is None else _numbers("d", columned.high, size, odd, criterion)
    samples = (
        array("I", [columned.samples]) * size
        if isinstance(columned.samples, int)
        else _numbers("I", columned.samples, size, odd, criterion)
    )
    passed = Passed(bytearray(at not in odd for at in range(size)), value, low, high, samples)
    return Alike(criterion, columned.bound, things, passed, odd)


def _numbers(code: str, column: Sequence[Any], size: int, odd: Collection[int], criterion: str) -> array[Any]:
    """A column with 0 where it has null, as it must at the places that are told one by one, and nowhere else."""
    if len(column) != size:
        raise ValueError(
            f"{criterion}: passed: a column of {number_of(len(column), 'number')} for {number_of(size, 'node')}"
        )
    gone = [at for at, number in enumerate(column) if number is None]
    if len(gone) != len(odd) or not all(at in odd for at in gone):
        raise ValueError(f"{criterion}: passed: null is at other places than the judgements that are listed one by one")
    return array(code, [0 if number is None else number for number in column] if gone else column)
