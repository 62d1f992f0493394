"""What is owed, and whether a run pays it: from the verdicts on the criteria to the outcome of the run.

What an acceptance profile leaves out is measured and shown like everything else, and does not decide an acceptance,
but for one thing: a measured failure counts whether it was owed or not. Nobody accepts a system in which something is
known to be broken without saying so, by a waiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.methods import METHODS
from validation.model import CriterionVerdict, Judgement, Result
from validation.model.judgement import others
from validation.model.node_facts import NodeFacts
from validation.rules.profile import Profile

PASSED_SHARE = 0.5
"""Share of the owed criteria that can be measured on this fabric which must pass where waivers took part. Project
default: what is mostly waived was not accepted by measuring it."""

UNDECLARED = "no inventory declares this machine, so nothing is owed"
UNSEEN = "nothing looked at the nodes themselves, which may be virtual ones: add --suite preflight"


@dataclass(frozen=True)
class Debt:
    """What decides an acceptance: ids that are `owed`, and what the profile left out -> why.

    `nothing`: why nothing at all is owed, "" where something is.
    """

    owed: frozenset[str]
    left_out: dict[str, str]
    nothing: str = ""

    @classmethod
    def of(cls, case: Case, profile: Profile | None) -> Debt:
        """By the profile; without one everything that the criteria require, of a machine that was declared."""
        if case.topology.here is not None:
            return cls(frozenset(), {}, UNDECLARED)
        if profile is None:
            return cls(frozenset(c.id for c in case.criteria if c.required), {})
        left_out = profile.not_owed(case.criteria, case.fabric)
        return cls(frozenset(profile.owed) - left_out.keys(), left_out)

    def why_not(self, criterion: str) -> str:
        """Why a criterion is not owed; "" where it is."""
        if criterion in self.owed:
            return ""
        return self.nothing or self.left_out.get(
            criterion, "reported for information; the catalogue does not require it"
        )


def decide(
    case: Case, debt: Debt, verdicts: Sequence[CriterionVerdict], missing: Sequence[str]
) -> tuple[str, list[str]]:
    """passed, failed or incomplete, and notes on what withholds a pass that no criterion tells of."""
    if any(v.verdict == "fail" for v in verdicts):
        return "failed", []
    here = case.topology.here
    if here is not None and here.gpu_trouble:
        return "incomplete", [f"its GPUs were not measured: {here.gpu_trouble}"]
    deciding = [v for v in verdicts if v.id not in debt.left_out]
    if _lost(case, debt, deciding, missing):
        return "incomplete", []
    figures = {c.id for c in case.criteria if METHODS[c.method].figures}
    # what was not measured withholds a pass by the criterion behind the baseline, if at all
    baselines = {c.id for c in case.criteria if c.bound.since is not None}
    for verdict in deciding:
        if verdict.id in baselines:
            continue
        for judgement in others(verdict.judgements):
            if judgement.verdict == "not-measured" and not _excused(
                case, judgement, verdict.owed, verdict.id in figures
            ):
                return "incomplete", []
        if not case.virtual and verdict.owed and verdict.verdict not in ("pass", "waived", "not-applicable"):
            return "incomplete", []
    if not any(j.verdict == "pass" for v in deciding for j in v.judgements):
        return "incomplete", [
            f"nothing that {'was judged' if debt.nothing else 'is owed'} was found good: that is no pass"
        ]
    few = _mostly_waived(case, verdicts)
    if few:
        return "incomplete", [few]
    asked = [m for m in case.plan.measurements if m.kind == "facts"]
    if not case.virtual and not asked:
        return "incomplete", [UNSEEN]
    if not case.virtual and any(not _shows_hardware(case.latest.get(m.id)) for m in asked):
        return "incomplete", []
    return "passed", []


def _excused(case: Case, judgement: Judgement, owed: bool, figure: bool) -> bool:
    """True where it withholds no pass: what only hardware can show, of virtual parts; of a machine that nobody
    declared, what is judged by a declaration; of what nobody owes, a figure that nothing is known to hold against, and
    what would be decided by suites that were not selected, as where a criterion's own suite was not selected.
    What was found and nobody can tell the meaning of, as an Xid that is in no list, is no figure.
    """
    if judgement.reason_code == "virtual":
        return case.virtual
    if judgement.reason_code == "not-selected":
        return not owed
    return judgement.reason_code == "no-bound" and (case.topology.here is not None or (figure and not owed))


def _lost(case: Case, debt: Debt, deciding: Sequence[CriterionVerdict], missing: Sequence[str]) -> bool:
    """True where a planned measurement is lost that serves something owed and that no waiver excuses."""
    excused = {e for v in deciding for j in others(v.judgements) if j.verdict == "waived" for e in j.evidence}
    open_ = {e for v in deciding for j in others(v.judgements) if j.verdict == "not-measured" for e in j.evidence}
    idle = {m.id for m in case.plan.measurements if m.criteria and set(m.criteria) <= debt.left_out.keys()}
    return any(m not in idle and (m not in excused or m in open_) for m in missing)


def _mostly_waived(case: Case, verdicts: Sequence[CriterionVerdict]) -> str:
    """Words where waivers stand for more of what is owed than measurements do; "" where they do not."""
    measurable = {c.id for c in case.criteria if c.kind is not None and case.applies(c)}
    owed = [v for v in verdicts if v.owed and v.id in measurable and v.reason_code != "not-applicable"]
    if case.virtual:  # what only hardware can show is no debt of a rehearsal
        owed = [v for v in owed if v.judgements and v.reason_code != "virtual"]
    good = [v for v in owed if v.verdict == "pass"]
    if not any(v.verdict == "waived" for v in owed) or len(good) >= PASSED_SHARE * len(owed):
        return ""
    return (
        f"mostly waived: {len(good)} of {number_of(len(owed), 'criterion')} that are owed and can be "
        "measured pass, at least "
        f"{PASSED_SHARE:.0%} must, whatever is waived"
    )


def _shows_hardware(result: Result | None) -> bool:
    """True where the node's own facts say what it runs on; without them nobody knows whether it is virtual."""
    return result is not None and result.status == "ok" and result.facts_of(NodeFacts) is not None
