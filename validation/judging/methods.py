"""How criteria are judged: every method by its name. Criteria are held against these names when they are loaded.

A method stands beside what it judges, under `@method`, and is found there; those of any measurement are in this room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from validation.base import discovery
from validation.base.discovery import Discovered
from validation.judging.case import Case
from validation.model import Judgement, VerdictDoc
from validation.rules.criterion import Criterion

Judge = Callable[[Case, Criterion], Sequence[Judgement]]
J = TypeVar("J", bound=Judge)


@dataclass(frozen=True)
class Method:
    """From the results that serve a criterion to its judgements.

    `about`: what it does. `figures`: what it judges are figures that may come out otherwise the next time. `counts`:
    what the coverage counts, where that is not the criterion's scope.
    """

    judge: Judge
    about: str
    figures: bool = False
    counts: str = ""


_declared: list[tuple[str, Method]] = []


def _found() -> list[tuple[str, Method]]:
    discovery.modules("validation.judging")
    discovery.modules()
    return sorted(_declared, key=lambda one: one[0])


METHODS = Discovered(_found)


def method(name: str, about: str, *, figures: bool = False, counts: str = "") -> Callable[[J], J]:
    """Make a function the method of that name; the other arguments are fields of `Method`."""

    def known(judge: J) -> J:
        _declared.append((name, Method(judge, about, figures, counts)))
        return judge

    return known


def figures_of(verdict: VerdictDoc, criteria: Mapping[str, Criterion]) -> Iterator[tuple[str, Judgement]]:
    """Criterion and judgement, of each quantity above zero that has a better side and a bound of the criterion's own:
    what one run can be held against another by.
    """
    for judged in verdict.criteria:
        entry = criteria.get(judged.id)
        if entry is None or entry.bound.since is not None or entry.direction not in ("higher", "lower"):
            continue
        if METHODS[entry.method].figures and entry.unit:
            yield from ((judged.id, one) for one in judged.judgements if one.value is not None and one.value > 0)
