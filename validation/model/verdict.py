"""What was judged: verdict.json and its parts. Read through validation.model, like all documents of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from validation.model.base import Model, ReasonCode, SignOff, VerdictName, lighten
from validation.model.judgement import Judgement, Judgements, Subject, others
from validation.model.judgement_columns import Alike, Columned, Served, packed, unpacked
from validation.model.points import PointState


class LeftOut(Model):
    """Something that was not planned: why, and which criteria it leaves without a measurement, where that is clear."""

    why: str
    criteria: tuple[str, ...] = ()


def _as_they_are(value: object, check: Callable[[object], object]) -> object:
    return value if isinstance(value, Judgements) else check(value)


def _one_by_one(value: Sequence[Judgement], write: Callable[[object], Any]) -> Any:
    return write(tuple(value))


class _Many:
    """A tuple of judgements, or `Judgements` as they are; written and read as a tuple."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """JSON is read as of any tuple: a function in between would have it read into Python's lists first."""
        ordinary = handler(source)
        return core_schema.json_or_python_schema(
            json_schema=ordinary,
            python_schema=core_schema.no_info_wrap_validator_function(_as_they_are, ordinary),
            serialization=core_schema.wrap_serializer_function_ser_schema(_one_by_one, schema=ordinary),
        )


if TYPE_CHECKING:
    _Some = Sequence[Judgement]
else:
    _Some = Annotated[tuple[Judgement, ...], _Many]


class CriterionVerdict(Model):
    """A criterion over all its subjects. `coverage` e.g. "12/12 pairs".

    `required` is what the catalogue says, `owed` whether it decides an acceptance by the run's profile; `not_owed`
    says why it does not ("" where it is owed). `passed`: in verdict.json of a fleet what passed, as
    columns; it is among `judgements` once it is read.
    """

    id: str
    statement: str
    source: str
    required: bool
    owed: bool
    not_owed: str
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    coverage: str
    judgements: _Some = ()
    passed: Columned | None = None  # in verdict.json alone


class Finding(Model):
    """The suspect node, port or link, named from the full pair matrix, with what to do about it.

    `cause`: why, with its evidence, "" where nothing was seen. `confidence`: from 0 to 1 that it is this
    part, None where nothing had to be concluded.
    """

    kind: Literal["node", "port", "link", "pair", "cluster"]
    about: Subject
    text: str
    cause: str = ""
    confidence: float | None = Field(default=None, ge=0, le=1)
    remedy: str
    criteria: tuple[str, ...]
    evidence: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What it names, in words."""
        return str(self.about)


class AgreedProfile(Model):
    """The acceptance profile that a run is judged by: which delivery, and which test of it."""

    name: str
    title: str
    delivery: str
    test: str


class WaiverUse(Model):
    """A waiver of the run's waivers.yml. `covered`: the subjects that it lifted; `without_effect`: why it, or a part of
    it, has none ("" where all of it counts). Dates are ISO 8601.
    """

    criterion: str
    subject: str | None
    who: str
    when: str
    expires: str
    why: str
    covered: tuple[str, ...]
    without_effect: str


_EMPTY, _BEGIN = '\n  "criteria": []', '\n  "criteria": [\n'
_UNJUDGED, _FIRST, _LAST = '\n      "judgements": []', '\n      "judgements": [\n', "\n      ]"
_JUDGED = 1000
"""Judgements of a criterion that are written at a time."""


def _columned(criterion: CriterionVerdict, tables: list[Served], of: dict[int, int]) -> CriterionVerdict:
    """A criterion as verdict.json has it. `tables` and `of`: as of `packed`."""
    judged = criterion.judgements
    columned = packed(judged, tables, of) if isinstance(judged, Alike) else None
    if columned is None or not isinstance(judged, Alike):
        return criterion
    return criterion.model_copy(update={"judgements": tuple(judged.others), "passed": columned})


def _told_one_by_one(criterion: CriterionVerdict) -> Iterator[str]:
    """A criterion as it stands in the list of verdict.json."""
    without = {"passed"} if criterion.passed is None else set()
    if len(criterion.judgements) <= _JUDGED:
        yield criterion.model_dump_json(indent=2, exclude=without).replace("\n", "\n    ")
        return
    rest = criterion.model_copy(update={"judgements": ()})
    text = rest.model_dump_json(indent=2, exclude=without).replace("\n", "\n    ")
    before, after = text.split(_UNJUDGED)
    yield before + _FIRST
    for at in range(0, len(criterion.judgements), _JUDGED):
        some = criterion.model_copy(update={"judgements": criterion.judgements[at : at + _JUDGED], "passed": None})
        text = some.model_dump_json(indent=2, exclude={"passed"}).replace("\n", "\n    ")
        yield (",\n" if at else "") + text[text.index(_FIRST) + len(_FIRST) : text.rindex(_LAST)]
    yield _LAST + after


def _unwritten(verdict: VerdictDoc) -> set[str]:
    """Keys that are written by themselves, or not at all."""
    return {"served"} if verdict.points else {"served", "points"}


class VerdictDoc(Model):
    """verdict.json. `outcome` says what a rehearsal would have been signed as on hardware that it describes:
    passed (everything judged passed), failed, incomplete (a planned measurement is missing or unusable).
    """

    run: str
    fabric: str
    site: str
    sign_off: SignOff
    outcome: Literal["passed", "failed", "incomplete"]
    headline: str
    planned: int
    measured: int
    missing: tuple[str, ...]  # measurement ids without a usable result
    left_out: tuple[LeftOut, ...] = ()  # of the plan
    criteria: tuple[CriterionVerdict, ...]
    findings: tuple[Finding, ...]
    profile: AgreedProfile | None  # None: no profile was agreed on, so everything required is owed
    waivers: tuple[WaiverUse, ...] = ()
    notes: tuple[str, ...] = ()
    points: tuple[PointState, ...] = ()  # of the punch list; not written where there are none
    served: tuple[Served, ...] = ()  # what `passed` of the criteria is of, in verdict.json alone

    @model_validator(mode="after")
    def _told(self) -> VerdictDoc:
        things = [table.things() for table in self.served]
        for criterion in self.criteria:
            lighten(thing for j in others(criterion.judgements) for thing in (j, j.about, *j.about.ends))
            if criterion.passed is not None:
                whole = unpacked(criterion.id, criterion.passed, things, criterion.judgements)
                vars(criterion).update(judgements=whole, passed=None)
        vars(self)["served"] = ()
        return self

    def model_dump_json(self, **how: Any) -> str:
        """As verdict.json has it: of a fleet, what passed as columns."""
        tables: list[Served] = []
        of: dict[int, int] = {}
        criteria = [_columned(criterion, tables, of) for criterion in self.criteria]
        document = self.model_copy(update={"criteria": tuple(criteria), "served": tuple(tables)})
        without: dict[str, Any] = {"criteria": {n: {"passed"} for n, c in enumerate(criteria) if c.passed is None}}
        if not tables:
            without["served"] = True
        if not self.points:
            without["points"] = True
        return super(VerdictDoc, document).model_dump_json(**{"exclude": without, **how})

    def written(self) -> Iterator[str]:
        """The same text as that of `model_dump_json(indent=2)` in its file, one criterion after another: a fleet's is
        written while it takes as much memory as its largest criterion.
        """
        tables: list[Served] = []
        of: dict[int, int] = {}
        if not self.criteria:
            yield from super().written()
            return
        rest = self.model_copy(update={"criteria": ()})
        before, after = super(VerdictDoc, rest).model_dump_json(indent=2, exclude=_unwritten(self)).split(_EMPTY)
        yield before + _BEGIN
        for place, criterion in enumerate(self.criteria):
            yield ",\n    " if place else "    "
            yield from _told_one_by_one(_columned(criterion, tables, of))
        yield "\n  ]"
        if not tables:
            yield after + "\n"
            return
        yield after.removesuffix("\n}")
        for place, table in enumerate(tables):
            yield ",\n    " if place else ',\n  "served": [\n    '
            yield table.model_dump_json(indent=2).replace("\n", "\n    ")
        yield "\n  ]\n}\n"

    @property
    def line(self) -> str:
        """Sign-off and headline."""
        return f"{self.sign_off}: {self.headline}"

    @property
    def owed(self) -> tuple[str, ...]:
        """Ids of the criteria that decide an acceptance, without those that have no meaning on this fabric."""
        return tuple(c.id for c in self.criteria if c.owed and c.reason_code != "not-applicable")

    @property
    def exit_code(self) -> int:
        """0 accepted or rehearsed with all judged criteria passing, 1 failed, 3 incomplete."""
        return {"passed": 0, "failed": 1, "incomplete": 3}[self.outcome]
