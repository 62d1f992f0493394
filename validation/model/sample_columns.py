"""Results as columns: samples of all results by metric, and results that read their line when more is asked of them.

A result of a fleet is asked for little: whether it was measured, what its machines were denied, the samples of one
metric, plain facts. These stand in the columns. Other facts, provenance and the order of samples of different metrics
are read from the line of results.jsonl when somebody asks for them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from validation.model import Denied, Result
from validation.model.base import ResultStatus
from validation.model.facts import PlainFacts, forms
from validation.model.result import F

_HERE = {"run", "measurement", "attempt", "status", "error", "denied"}


class Column:
    """The samples of one metric in one unit: `lines` that have some, ascending, where those of each end, `values`."""

    def __init__(self, unit: str, lines: array[int], ends: array[int], values: array[float]) -> None:
        """All three as `packed` makes them."""
        self.unit, self.lines, self.ends, self.values = unit, lines, ends, values

    def of(self, line: int) -> list[float]:
        """The samples of a line (from 0) in their order."""
        at = bisect_left(self.lines, line)
        if at == len(self.lines) or self.lines[at] != line:
            return []
        return self.values[self.ends[at - 1] if at else 0 : self.ends[at]].tolist()


class Row(NamedTuple):
    """A line of results.jsonl without its samples. `form` names the class of its facts, `plain` are these where they
    are plain; `end` is the byte behind the line.
    """

    measurement: str
    attempt: int
    status: ResultStatus
    error: str | None
    denied: tuple[Denied, ...]
    plain: PlainFacts
    form: str
    end: int


def in_columns(results: Iterable[Result], run: str, text: bytes = b"", ends: Sequence[int] = ()) -> Columns | None:
    """Results as columns; `text` is results.jsonl, whose lines end at `ends`, where more of them can be asked for. None
    where one has samples of one metric in two units: no result that a parser made has.
    """
    rows: list[Row] = []
    columns: dict[tuple[str, str], Column] = {}
    for line, result in enumerate(results):
        units: dict[str, str] = {}
        for s in result.samples:
            if units.setdefault(s.metric, s.unit) != s.unit:
                return None
            column = columns.get((s.metric, s.unit))
            if column is None:
                column = columns[s.metric, s.unit] = Column(s.unit, array("I"), array("I"), array("d"))
            column.values.append(s.value)
            if column.lines and column.lines[-1] == line:
                column.ends[-1] = len(column.values)
            else:
                column.lines.append(line)
                column.ends.append(len(column.values))
        form, end = type(result.facts).__name__, ends[line] if line < len(ends) else 0
        own = (result.measurement, result.attempt, result.status, result.error, result.denied, result.plain)
        rows.append(Row(*own, form, end))
    return Columns(run, text, rows, columns)


class Columns:
    """Results of a run in the order of their lines, their samples in columns."""

    def __init__(self, run: str, text: bytes, rows: Sequence[Row], columns: Mapping[tuple[str, str], Column]) -> None:
        """`text` is results.jsonl, of whose lines these are; `columns` are by metric and unit."""
        self.run, self._text, self.rows, self.by_metric = run, text, rows, columns
        self._others: dict[type[Any], set[str]] = {}
        self._metrics: dict[str, list[Column]] = {}
        for (metric, _), column in columns.items():
            self._metrics.setdefault(metric, []).append(column)

    def results(self) -> list[Result]:
        """All results, in the order of their lines."""
        return [Stored.of(self, line, row) for line, row in enumerate(self.rows)]

    def samples(self, metric: str, line: int) -> dict[str, list[float]]:
        """The samples of a metric in a line (from 0) by their unit; no unit without samples."""
        some = self._metrics.get(metric)
        if some is None:
            return {}
        return {column.unit: values for column in some if (values := column.of(line))}

    def only(self, metric: str, unit: str) -> Column | None:
        """The samples of a metric, where all lines have them in that unit and no other."""
        found = self._metrics.get(metric, ())
        return found[0] if len(found) == 1 and found[0].unit == unit else None

    def may_be(self, line: int, form: type[Any]) -> bool:
        """False where a line's facts are of another form for certain: of another name, or plain, which are a dict."""
        if form not in self._others:
            sure = () if form.__subclasses__() else (form.__name__,)
            names = {row.form for row in self.rows}
            self._others[form] = {name for name in names if name == "dict" or (sure and name not in sure)}
        return self.rows[line].form not in self._others[form]

    def no_figure(self, line: int) -> bool:
        """Whether a line's facts are of a form that can say why there is no figure."""
        return self.rows[line].form in self._without_figure

    @cached_property
    def _without_figure(self) -> frozenset[str]:
        return frozenset(form.__name__ for form in forms().values() if form.no_figure)

    def plain(self, line: int) -> PlainFacts:
        """A line's facts where they are plain, else {}."""
        return self.rows[line].plain

    def text(self, line: int) -> bytes:
        """A line (from 0) of results.jsonl."""
        return self._text[self.rows[line - 1].end if line else 0 : self.rows[line].end]


class Stored(Result):
    """A result whose samples stand in columns; what else it has is read from its line when it is asked for."""

    @classmethod
    def of(cls, columns: Columns, line: int, row: Row) -> Stored:
        """The result of a line (from 0)."""
        made = cls.__new__(cls)
        fields = {
            "run": columns.run, "measurement": row.measurement, "attempt": row.attempt, "status": row.status,
            "error": row.error, "denied": row.denied, "_of": (columns, line),
        }  # fmt: skip
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", _HERE)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    def __getattr__(self, name: str) -> Any:
        """A field that is not here yet."""
        mine = object.__getattribute__(self, "__dict__")
        if name not in Result.model_fields or "_of" not in mine:
            raise AttributeError(name)
        columns, line = mine["_of"]
        read = Result.model_validate_json(columns.text(line), strict=True)
        if name == "facts":  # of a fleet these are asked for alone, and all that a line holds is ten times as much
            mine["facts"] = read.facts
            return read.facts
        for key, value in vars(read).items():
            mine.setdefault(key, value)
        return mine[name]

    @property
    def stored(self) -> tuple[Columns, int] | None:
        """The columns of its samples and its line (from 0) in them; None where samples stand in the result itself."""
        mine = vars(self)
        return None if "samples" in mine else mine["_of"]

    def samples_in(self, metric: str) -> Mapping[str, Sequence[float]]:
        """As of every result, from the columns."""
        mine = vars(self)
        if "samples" in mine:  # read, or replaced in a copy
            return super().samples_in(metric)
        columns, line = mine["_of"]
        found: dict[str, list[float]] = columns.samples(metric, line)
        return found

    def facts_of(self, form: type[F]) -> F | None:
        """As of every result; the line is not read where its facts are of another form."""
        mine = vars(self)
        if "facts" not in mine:
            columns, line = mine["_of"]
            if not columns.may_be(line, form):
                return None
        return super().facts_of(form)

    @property
    def no_figure(self) -> bool:
        """As of every result, from the columns."""
        mine = vars(self)
        if "facts" in mine:
            return super().no_figure
        columns, line = mine["_of"]
        return bool(columns.no_figure(line))

    @property
    def plain(self) -> PlainFacts:
        """As of every result, from the columns."""
        mine = vars(self)
        if "facts" in mine:
            return super().plain
        columns, line = mine["_of"]
        found: PlainFacts = columns.plain(line)
        return found

    def values(self, metric: str) -> list[float]:
        """As of every result, from the columns: no line has a metric in two units there."""
        return [value for values in self.samples_in(metric).values() for value in values]
