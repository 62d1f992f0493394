"""What is judged of one subject: subjects, bounds, judgements. Read through validation.model, like all documents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from validation.model.base import Endpoint, Model, ReasonCode, VerdictName, built

READ = "read"
"""The operation of RDMA whose data come from the destination of its pair."""


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


class Sort(NamedTuple):
    """What equals have in common: values of two sorts are never held against each other."""

    kind: str
    op: str
    both_ways: bool

    @property
    def words(self) -> str:
        """`write, both ways`; "" where a criterion has one sort alone."""
        return ", ".join(filter(None, (self.op, "both ways" if self.both_ways else "")))


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
        """Two ports, in this order. Of these very types, which are not looked at again."""
        return _subject({"kind": "pair", "ends": (source, destination), "op": op, "both_ways": both_ways})

    @property
    def sort(self) -> Sort:
        """Its equals are the subjects of one criterion that have the same."""
        return Sort(self.kind, self.op, self.both_ways)

    @property
    def flows(self) -> tuple[tuple[Endpoint, Endpoint], ...]:
        """Of a pair, from which port to which the data went: of a read to the one that asked, of both ways either way.
        Nothing of anything else.
        """
        if len(self.ends) != 2:
            return ()
        source, destination = self.ends
        if self.both_ways:
            return (source, destination), (destination, source)
        return ((destination, source),) if self.op == READ else ((source, destination),)

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


_subject = built(Subject)


@lru_cache(maxsize=20_000)
def _node(name: str, op: str) -> Subject:
    return Subject(kind="node", ends=(Endpoint(node=name),), op=op)


CLUSTER = Subject(kind="cluster")


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
        return _judgement(fields)

    @property
    def subject(self) -> str:
        """What it is about, in words."""
        return str(self.about)


_judgement = built(Judgement)


class Judgements(Sequence[Judgement]):
    """Judgements of which those that pass are made when they are asked for: one takes 1 kB, and a fleet has millions.

    Equal to any others that say the same.
    """

    @property
    @abstractmethod
    def others(self) -> Sequence[Judgement]:
        """Those that are not made when they are asked for: all that do not pass, in their order, and some that do."""

    @property
    @abstractmethod
    def passing(self) -> Iterator[str]:
        """The measurement of each of those that are made when they are asked for."""

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
