"""What was judged: verdict.json and its parts. Read through validation.model, like all documents of a run."""

from __future__ import annotations

from typing import Literal

from validation.model_base import Model, ReasonCode, SignOff, VerdictName


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


class Judgement(Model):
    """One criterion applied to one subject: a pair "a/p>b/p", a node, or the whole "cluster"."""

    criterion: str
    subject: str
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
    judgements: tuple[Judgement, ...] = ()


class Finding(Model):
    """The guilty node, port or link, named from the full pair matrix, with what to do about it."""

    kind: Literal["node", "port", "link", "pair", "cluster"]
    subject: str
    text: str
    remedy: str
    criteria: tuple[str, ...]
    evidence: tuple[str, ...] = ()


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
    criteria: tuple[CriterionVerdict, ...]
    findings: tuple[Finding, ...]
    profile: AgreedProfile | None  # None: no profile was agreed on, so everything required is owed
    waivers: tuple[WaiverUse, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def owed(self) -> tuple[str, ...]:
        """Ids of the criteria that decide an acceptance, without those that have no meaning on this fabric."""
        return tuple(c.id for c in self.criteria if c.owed and c.reason_code != "not-applicable")

    @property
    def exit_code(self) -> int:
        """0 accepted or rehearsed with all judged criteria passing, 1 failed, 3 incomplete."""
        return {"passed": 0, "failed": 1, "incomplete": 3}[self.outcome]
