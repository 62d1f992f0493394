"""The judge: results against criteria. Pure; the same run directory gives the same verdict on any machine.

Nothing passes without samples behind it. Completeness is the plan minus the results, every bound is derived and
two-sided, and a measurement that cannot decide says so instead of guessing. See docs/explanation/verdicts.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from validation.base.counting import number_of
from validation.judging.case import Case, discounted, make_case
from validation.judging.methods import METHODS
from validation.judging.run_data import RunData
from validation.judging.vm_hosts import over_the_fabric
from validation.measures.node.security_floors import old_floors
from validation.model import (
    CriterionVerdict,
    Finding,
    Judgement,
    ReasonCode,
    Result,
    SignOff,
    Topology,
    VerdictDoc,
    VerdictName,
)
from validation.model.judgement import Judgements, others
from validation.model.node_facts import NodeFacts
from validation.model.points import counted
from validation.rules.criterion import Criterion
from validation.rules.virtual import constructed, rehearses, virtual_facts
from validation.verdict.equals import slower
from validation.verdict.findings import findings
from validation.verdict.owed import Debt, decide
from validation.verdict.punch import blocked, follow
from validation.verdict.waivers import apply_waivers

SCOPES = {"pair": "pairs", "port": "ports", "node": "nodes", "group": "groups", "cluster": "jobs"}


def judge(run: RunData) -> VerdictDoc:
    """The verdict on a run. Of several lines of a measurement judging/attempts.py says which count."""
    topology, plan, fabric, day = run.topology, run.plan, run.fabric, run.info.day
    case = make_case(topology, plan, fabric, run.criteria, run.results, run.accepted)
    facts = [case.latest[m.id] for m in plan.measurements if m.kind == "facts" and m.id in case.latest]
    shown = virtual_facts(facts, fabric)
    # a node that only claims to be virtual is no acceptance, and is no reason to judge by the bounds of rehearsals
    rehearsal = rehearses(topology, facts, fabric)
    case = discounted(case, run.evidence)
    judged = {
        c.id: over_the_fabric(case, c, METHODS[c.method].judge(case, c))
        if c.kind is not None and case.applies(c)
        else ()
        for c in case.criteria
    }
    waived = apply_waivers(case, judged, run.waivers, day)
    debt = Debt.of(case, run.profile)
    verdicts = tuple(_verdict(case, c, waived.judged[c.id], waived.whole.get(c.id), debt) for c in case.criteria)
    missing = case.missing()
    outcome, why = decide(case, debt, verdicts, missing)
    points = follow(run.points, waived.judged, plan.run, day, run.info.part)
    held = blocked(points) if outcome == "passed" else ""
    if held:
        outcome, why = "incomplete", [*why, held]
    sign_off: SignOff = "REHEARSAL" if rehearsal else _sign_off(outcome, topology)
    if constructed(facts):
        sign_off = "CONSTRUCTED EXAMPLE"
    named = findings(case, waived.judged)
    return VerdictDoc.model_validate(
        {
            "run": plan.run,
            "fabric": fabric.name,
            "site": topology.site,
            "sign_off": sign_off,
            "outcome": outcome,
            "headline": _headline(outcome, verdicts, missing, named, why, held),
            "planned": len(plan.measurements),
            "measured": len(plan.measurements) - len(missing),
            "missing": missing,
            "left_out": case.plan.left_out,
            "criteria": verdicts,
            "findings": named,
            "profile": run.profile.agreed() if run.profile else None,
            "waivers": tuple(waived.uses),
            "notes": (
                *_notes(case, shown, run.results, facts, rehearsal),
                *(one.words for one in slower(case, waived.judged)),
                *old_floors(case, day),
                *run.evidence.notes,
                *waived.notes,
                *why,
                *((f"punch list: {counted(points)}",) if points else ()),
            ),
            "points": points,
        }
    )


def _sign_off(outcome: str, topology: Topology) -> SignOff:
    """Of hardware. What no inventory declares is neither accepted nor rejected: nobody said what it was to be."""
    if topology.here is not None:
        return "INSPECTION"
    states: dict[str, SignOff] = {"passed": "ACCEPTED", "failed": "REJECTED", "incomplete": "INCOMPLETE"}
    return states[outcome]


def _verdict(
    case: Case, criterion: Criterion, judged: Sequence[Judgement], waived: str | None, debt: Debt
) -> CriterionVerdict:
    """A criterion over all its subjects: the worst of them."""

    def say(verdict: VerdictName, code: ReasonCode, reason: str, coverage: str) -> CriterionVerdict:
        return CriterionVerdict(
            id=criterion.id,
            statement=criterion.statement,
            source=criterion.source,
            required=criterion.required,
            owed=criterion.id in debt.owed,
            not_owed=debt.why_not(criterion.id),
            verdict=verdict,
            reason_code=code,
            reason=reason,
            coverage=coverage,
            judgements=judged if isinstance(judged, Judgements) else tuple(judged),
        )

    things = METHODS[criterion.method].counts or SCOPES[criterion.scope]
    if not judged:
        if criterion.applies is not None and not case.applies(criterion):
            return say("not-applicable", "not-applicable", f"{case.fabric.name}: {criterion.applies.why}", "none")
        if waived:
            return say("waived", "waived", waived, f"0 {things}")
        if criterion.no_probe:
            return say("not-measured", "no-probe", criterion.no_probe, f"0 {things}")
        return say("not-measured", "not-selected", _why_not_planned(case, criterion), f"0 {things}")
    rest = others(judged)
    beside = sum(j.verdict == "not-applicable" for j in rest)  # of which there is nothing to decide
    count = len(judged) - beside
    decided = len(judged) - len(rest) + sum(j.verdict in ("pass", "fail", "waived") for j in rest)
    coverage = f"{decided}/{count} {things}"
    for verdict in ("fail", "not-measured", "waived"):
        worst = [j for j in rest if j.verdict == verdict]
        if worst:
            codes = Counter(j.reason_code for j in worst)
            # the first of the most frequent reasons speaks for the criterion; all stand in the judgements
            first = next(j for j in worst if codes[j.reason_code] == max(codes.values()))
            reason = f"{len(worst)} of {count} {things}: {first.subject}: {first.reason}"
            return say(first.verdict, first.reason_code, reason if len(judged) > 1 else first.reason, coverage)
    if len(rest) == len(judged) and all(j.verdict == "not-applicable" for j in rest):
        reason = f"{judged[0].subject}: {judged[0].reason}" if len(judged) > 1 else judged[0].reason
        return say("not-applicable", judged[0].reason_code, reason, f"{len(judged)} {things}")
    reason = f"all {count} {things} pass" if count > 1 else next(j for j in judged if j.verdict == "pass").reason
    if beside:
        reason += f", and of {beside} more nothing is judged"
    marked = [j for j in rest if j.reason_code == "remarked"]
    if marked and len(judged) > 1:
        reason += f", {len(marked)} with a remark: {marked[0].subject}: {marked[0].reason}"
    return say("pass", "remarked" if marked else "within-bounds", reason, coverage)


def _why_not_planned(case: Case, criterion: Criterion) -> str:
    if criterion.suite not in case.plan.suites:
        return f"suite {criterion.suite} was not selected for this run"
    left_out = case.plan.left_out
    said = [left.why for left in left_out if criterion.id in left.criteria] or [left.why for left in left_out]
    return f"nothing of it was planned: {'; '.join(said)}" if said else "nothing of it was planned"


def _headline(
    outcome: str,
    verdicts: Sequence[CriterionVerdict],
    missing: Sequence[str],
    named: Sequence[Finding],
    why: Sequence[str],
    held: str = "",
) -> str:
    count = Counter(v.verdict for v in verdicts)
    if outcome == "failed":
        failed = ", ".join(v.id for v in verdicts if v.verdict == "fail")
        suspect = f"; at fault: {', '.join(dict.fromkeys(f.subject for f in named))}" if named else ""
        words = f"failed: {failed}{suspect}"
    elif outcome == "incomplete":
        if held:
            words = f"incomplete: {held}"
        elif missing:
            words = (
                f"incomplete: {number_of(len(missing), 'planned measurement')} "
                f"{'has' if len(missing) == 1 else 'have'} no usable result"
            )
        else:
            undecided = [v.id for v in verdicts if v.verdict == "not-measured" and v.judgements] or [
                v.id for v in verdicts if v.verdict == "not-measured" and v.owed
            ]
            said = f"not measured: {_some(undecided)}" if undecided else "; ".join(why) or "its notes say why"
            words = f"incomplete: {said}"
    else:
        words = f"all {count['pass']} judged criteria pass"
    extra = f"{count['not-measured']} not measured" if count["not-measured"] and outcome != "incomplete" else ""
    extra = ", ".join(x for x in (extra, f"{count['waived']} waived" if count["waived"] else "") if x)
    return words + (f" ({extra})" if extra else "")


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _notes(
    case: Case,
    shown: Sequence[tuple[str, str]],
    results: Sequence[Result],
    facts: Sequence[Result],
    rehearsal: bool,
) -> list[str]:
    notes = []
    if constructed(facts):
        notes.append("the data of this run were constructed: no machine was measured, and nothing is accepted")
    if case.topology.here is not None:
        notes.append(
            "one machine as it was found: no inventory declares it, so nothing is owed and nothing is accepted"
        )
    if case.passed_through and case.virtual:
        notes.append(
            "a container or virtual machine with GPUs of its own: what these do by themselves is judged, the rest "
            "of it is its host's"
        )
    if rehearsal:
        notes.append("virtual or emulated parts took part: this is a rehearsal, never an acceptance")
    if shown and not case.topology.virtual:
        who = ", ".join(f"{node} ({what})" for node, what in shown)
        unsaid = "" if case.topology.here is not None else "the inventory does not declare it, but "
        notes.append(f"{unsaid}the nodes' own facts show virtual parts: {who}")
    for result in facts:
        if result.status == "ok" and result.facts_of(NodeFacts) is None:
            notes.append(f"{result.measurement}: nothing says whether the node is virtual; it cannot be accepted")
    planned = {m.id for m in case.plan.measurements}
    strange = sorted({r.measurement for r in results} - planned)
    if strange:
        notes.append(f"results that are in no plan were ignored: {_some(strange)}")
    link = case.topology.lab_link
    expected = link.rate_gbps if link is not None else case.fabric.line_rate_gbps
    for node in case.topology.nodes:
        for port in node.ports:
            if port.rate_gbps is not None and port.rate_gbps != expected:
                notes.append(
                    f"{node.name}/{port.interface}: the inventory declares {port.rate_gbps:g} Gbit/s, "
                    f"{'the lab link' if link is not None else case.fabric.name} has {expected:g}; "
                    f"judged by {expected:g} Gbit/s"
                )
    return notes
