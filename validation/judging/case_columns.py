"""The samples of a run as columns, for judging a metric over all measurements at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

from validation.model import Measurement, Result, Subject
from validation.model.judgement_columns import Things
from validation.model.sample_columns import Columns, Stored, in_columns

_ODD = 2**32 - 1
"""Instead of a line: this measurement is looked at by itself."""


class CaseColumns:
    """The samples of a run as columns, and which measurements can be judged from them: those of a single attempt that
    came to its end. What passes does so however disturbed it was: being denied makes nothing faster.
    """

    def __init__(self, attempts: Mapping[str, Sequence[Result]]) -> None:
        """`attempts`: all results of each measurement."""
        self._where: dict[str, tuple[int, int]] = {}
        self._lines: dict[int, tuple[Sequence[Measurement], list[tuple[Columns, array[int]]]]] = {}
        self._things: dict[int, tuple[Sequence[Measurement], Things]] = {}
        self.parts: list[Columns] = []
        places: dict[int, int] = {}
        loose: list[Result] = []
        for id_, mine in attempts.items():
            result = mine[0]
            if len(mine) != 1 or result.status != "ok" or result.error:
                continue
            if result.no_figure:
                continue
            stored = result.stored if isinstance(result, Stored) else None
            if stored is None:
                loose.append(result)
                continue
            columns, line = stored
            place = places.setdefault(id(columns), len(self.parts))
            if place == len(self.parts):
                self.parts.append(columns)
            self._where[id_] = (place, line)
        made = in_columns(loose, loose[0].run) if loose else None
        if made is not None:
            self._where |= {result.measurement: (len(self.parts), line) for line, result in enumerate(loose)}
            self.parts.append(made)

    def lines(self, served: Sequence[Measurement]) -> list[tuple[Columns, array[int]]]:
        """Where the samples of measurements stand: of each part the line of each of them, or `_ODD`. Looked up once
        for criteria that the very same measurements serve.
        """
        if id(served) not in self._lines:
            found = [self._where.get(m.id, (_ODD, _ODD)) for m in served]
            parts = [
                (columns, array("I", [line if part == place else _ODD for part, line in found]))
                for place, columns in enumerate(self.parts)
            ]
            self._lines[id(served)] = served, [p for p in parts if min(p[1], default=_ODD) != _ODD]
        return self._lines[id(served)][1]

    def things(self, served: Sequence[Measurement], about: Callable[[Measurement], Subject]) -> Things:
        """What measurements are about, the same for criteria that the very same measurements serve."""
        if id(served) not in self._things:
            ids = [m.id for m in served]
            self._things[id(served)] = served, Things(ids, lambda at: about(served[at]))
        return self._things[id(served)][1]
