"""Results as columns: samples of all results by metric, and results that read their line when more is asked of them.

A result of a fleet is asked for little: whether it was measured, what its machines were denied, the samples of one
metric, plain facts. These stand in the columns. Other facts, provenance and the order of samples of different metrics
are read from the line of results.jsonl when somebody asks for them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from validation.model import Denied, Result
from validation.model.base import ResultStatus
from validation.model.facts import PlainFacts
from validation.model.result import F
from validation.run.frames import Frame

_STATES: tuple[ResultStatus, ...] = get_args(ResultStatus)
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


def packed(results: Iterable[Result], begin: int, ends: Sequence[int]) -> Frame | None:
    """Results as a frame; `begin` is the byte of results.jsonl at which the first line begins, `ends` where each ends.
    None where one has samples of one metric in two units: no result that a parser made has.
    """
    found: dict[tuple[str, str], tuple[array[int], array[int], array[float]]] = {}
    names: dict[str, int] = {}
    forms: dict[str, int] = {}
    which, states, facts = array("I"), array("B"), array("H")
    told: dict[str, dict[str, Any]] = {"attempts": {}, "errors": {}, "denied": {}, "plain": {}}
    for line, result in enumerate(results):
        which.append(names.setdefault(result.measurement, len(names)))
        states.append(_STATES.index(result.status))
        facts.append(forms.setdefault(type(result.facts).__name__, len(forms)))
        if result.attempt != 1:
            told["attempts"][str(line)] = result.attempt
        if result.error is not None:
            told["errors"][str(line)] = result.error
        if result.denied:
            told["denied"][str(line)] = [one.model_dump() for one in result.denied]
        if result.plain:
            told["plain"][str(line)] = result.plain
        units: dict[str, str] = {}
        for s in result.samples:
            if units.setdefault(s.metric, s.unit) != s.unit:
                return None
            key = (s.metric, s.unit)
            if key not in found:
                found[key] = (array("I"), array("I"), array("d"))
            lines, stops, values = found[key]
            values.append(s.value)
            if lines and lines[-1] == line:
                stops[-1] = len(values)
            else:
                lines.append(line)
                stops.append(len(values))
    columns: dict[str, array[Any]] = {"measurement": which, "status": states, "facts": facts, "end": array("Q", ends)}
    for number, (lines, stops, values) in enumerate(found.values()):
        columns |= {f"lines.{number}": lines, f"ends.{number}": stops, f"values.{number}": values}
    said = {"begin": begin, "metrics": list(found), "measurements": list(names), "forms": list(forms)}
    return Frame({**said, **told}, columns)


class Columns:
    """What `packed` made, read again."""

    def __init__(self, frame: Frame, run: str, text: bytes) -> None:
        """`text` is results.jsonl, of whose lines these are. KeyError where the frame is none of `packed`."""
        self.run, self._text = run, text
        self._said, self._columns = frame.said, frame.columns
        self.ends: array[int] = frame.columns["end"]
        self._facts: array[int] = frame.columns["facts"]
        self._others: dict[type[Any], set[int]] = {}
        self._metrics: dict[str, list[Column]] = defaultdict(list)
        for number, (metric, unit) in enumerate(frame.said["metrics"]):
            lines, stops, values = (frame.columns[f"{part}.{number}"] for part in ("lines", "ends", "values"))
            self._metrics[metric].append(Column(unit, lines, stops, values))

    def results(self) -> list[Result]:
        """All results, in the order of their lines."""
        names, said = self._said["measurements"], self._said
        lines = enumerate(zip(self._columns["measurement"], self._columns["status"], strict=True))
        found: list[Result] = [Stored.of(self, n, names[which], _STATES[state]) for n, (which, state) in lines]
        for line, attempt in said["attempts"].items():
            vars(found[int(line)])["attempt"] = attempt
        for line, error in said["errors"].items():
            vars(found[int(line)])["error"] = error
        for line, some in said["denied"].items():
            vars(found[int(line)])["denied"] = tuple(Denied.model_validate(one) for one in some)
        return found

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
            names = self._said["forms"]
            sure = () if form.__subclasses__() else (form.__name__,)
            self._others[form] = {n for n, name in enumerate(names) if name == "dict" or (sure and name not in sure)}
        return self._facts[line] not in self._others[form]

    def plain(self, line: int) -> PlainFacts:
        """A line's facts where they are plain, else {}."""
        found: PlainFacts = self._said["plain"].get(str(line), {})
        return found

    def text(self, line: int) -> bytes:
        """A line (from 0) of results.jsonl."""
        return self._text[self.ends[line - 1] if line else self._said["begin"] : self.ends[line]]


class Stored(Result):
    """A result whose samples stand in columns; what else it has is read from its line when it is asked for."""

    @classmethod
    def of(cls, columns: Columns, line: int, measurement: str, status: ResultStatus) -> Stored:
        """The result of a line (from 0), as a first attempt without an error, of which nothing was denied."""
        made = cls.__new__(cls)
        fields = {
            "run": columns.run, "measurement": measurement, "attempt": 1, "status": status, "error": None,
            "denied": (), "_of": (columns, line),
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
