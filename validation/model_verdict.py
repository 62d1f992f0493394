"""What was judged: verdict.json and its parts. Read through validation.model, like all documents of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from validation.model_base import Endpoint, Model, ReasonCode, SignOff, VerdictName


class Bound(Model):
    """Both sides of what must hold, with its derivation line by line, ready for the report.

    `floor` None = no lower side, `maximum` = upper limit that a lower-is-better metric must keep, `ceiling` = what
    physics allows (above it the measurement is at fault), `equal` = exact criteria.
    """

    metric: str
    unit: str
    floor: float | None = None
    maximum: float | None = None
    ceiling: float | None = None
    equal: str | None = None
    derivation: tuple[str, ...] = ()
    source: str
    nominal: str | None = None  # in a rehearsal: the fabric's own bound, in words


class Compared(Model):
    """A part of a node as declared and as found. None = not declared, or not known; `equal` None = nothing to compare.

    `odd`: most nodes of a group have another value, or no two agree.
    """

    key: str
    declared: str | None
    found: str | None
    equal: bool | None
    odd: bool = False


class Subject(Model):
    """What a judgement or a finding is about.

    `ends`: one node, port or other thing by its name; of a pair source and destination, which are equal in rank where
    `both_ways`; of a cluster none. `op`: what was done there, as "write", "4 ranks" or "1/2 + 1/2"; "" where that says
    nothing more than the criterion.
    """

    kind: Literal["node", "port", "pair", "group", "cluster"]
    ends: tuple[Endpoint, ...] = ()
    op: str = ""
    both_ways: bool = False

    @classmethod
    def node(cls, name: str, op: str = "") -> Subject:
        """A whole node. Of a fleet, whose nodes are named by each criterion, there is one for each node."""
        return _node(name, op)

    @classmethod
    def port(cls, end: Endpoint) -> Subject:
        """A port of a node; where the endpoint has none, the node."""
        return cls(kind="port" if end.port else "node", ends=(end,))

    @classmethod
    def pair(cls, source: Endpoint, destination: Endpoint, op: str = "", both_ways: bool = False) -> Subject:
        """Two ports, in this order."""
        return cls(kind="pair", ends=(source, destination), op=op, both_ways=both_ways)

    def __str__(self) -> str:
        """`gpu1`, `gpu1/fab0`, `gpu1/fab0>gpu2/fab0 (write)`, `gpu1/fab0<>gpu2/fab0`, `cluster, 4 ranks`."""
        return self._words("<>", ">")

    @property
    def spaced(self) -> str:
        """The same with arrows, for people."""
        return self._words(" ↔ ", " → ")

    def _words(self, both: str, one: str) -> str:
        if self.kind == "pair":
            arrow = both if self.both_ways and not self.op else one
            how = f" ({self.op}{', both ways' if self.both_ways else ''})" if self.op else ""
            return arrow.join(map(str, self.ends)) + how
        where = str(self.ends[0]) if self.ends else self.kind
        return f"{where}, {self.op}" if self.op else where


@lru_cache(maxsize=20_000)
def _node(name: str, op: str) -> Subject:
    return Subject(kind="node", ends=(Endpoint(node=name),), op=op)


CLUSTER = Subject(kind="cluster")


class LeftOut(Model):
    """Something that was not planned: why, and which criteria it leaves without a measurement, where that is clear."""

    why: str
    criteria: tuple[str, ...] = ()


class Waived(Model):
    """Who waived a judgement, when, until when and why, and what it was before. Dates are ISO 8601."""

    who: str
    when: str
    until: str
    why: str
    was: VerdictName


class Judgement(Model):
    """One criterion applied to one subject, `about`; `waived` where a waiver lifted it."""

    criterion: str
    about: Subject
    verdict: VerdictName
    reason_code: ReasonCode
    reason: str
    value: float | None = None
    low: float | None = None  # 95 % interval
    high: float | None = None
    samples: int = 0
    text: str | None = None  # what was found, for criteria that compare text
    bound: Bound | None = None
    evidence: tuple[str, ...] = ()  # measurement ids
    compared: tuple[Compared, ...] = ()  # of criteria that hold a node against what is declared, part by part
    waived: Waived | None = None

    @classmethod
    def made(
        cls,
        criterion: str,
        about: Subject,
        verdict: VerdictName,
        reason_code: ReasonCode,
        reason: str,
        value: float | None,
        low: float | None,
        high: float | None,
        samples: int,
        text: str | None,
        bound: Bound | None,
        evidence: tuple[str, ...],
    ) -> Judgement:
        """One of these very types, which are not looked at again: a fleet has hundreds of thousands."""
        fields = locals()
        del fields["cls"]
        fields["compared"], fields["waived"] = (), None
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", _GIVEN)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    @property
    def subject(self) -> str:
        """What it is about, in words."""
        return str(self.about)


_GIVEN = set(Judgement.model_fields)
"""Of all judgements that are made; pydantic copies it with a judgement."""


class Judgements(Sequence[Judgement]):
    """Judgements of which those that pass are made when they are asked for: one takes 1 kB, and a fleet has millions.

    Equal to any others that say the same.
    """

    @property
    @abstractmethod
    def others(self) -> Sequence[Judgement]:
        """Those that are not made when they are asked for: all that do not pass, in their order, and some that do."""

    def __eq__(self, other: object) -> bool:
        """As tuples are."""
        if not isinstance(other, (tuple, Judgements)) or len(self) != len(other):
            return NotImplemented if not isinstance(other, (tuple, Judgements)) else False
        return all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        """As of a tuple."""
        return hash(tuple(self))


def others(judgements: Sequence[Judgement]) -> Sequence[Judgement]:
    """The judgements that do not pass, in their order, and among them some that do: to look for what is wrong in."""
    return judgements.others if isinstance(judgements, Judgements) else judgements


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
    says why it does not ("" where it is owed).
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
