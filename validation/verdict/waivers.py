"""Waivers applied to judgements, as of the day of the run.

A waiver is a decision about something that somebody has looked at. It covers what failed, what nobody could measure,
and a measurement that was lost; it never covers a node that was not measured: that would be an acceptance unseen.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from validation.judging.case import Case
from validation.model import Judgement, Waived, WaiverUse
from validation.model.judgement import Judgements, others
from validation.rules.waiver import Waiver

MEASURED_SHARE = 0.5
"""Share of the judgements on a node that must stand on a measurement before a lost one of that node can be waived.
Project default: of a node of which most was lost nobody knows what the rest would have shown."""

LOST = frozenset({"missing-result", "tool-failed", "missing-metric", "above-ceiling"})
"""Reasons of `not-measured` that leave nothing known of the subject."""


@dataclass
class Applied:
    """What waivers made of the judgements. `whole`: criteria without judgements that are waived, id -> words.

    `notes` tell of waivers, or parts of them, without effect.
    """

    judged: dict[str, Sequence[Judgement]]
    whole: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    uses: list[WaiverUse] = field(default_factory=list)


def apply_waivers(
    case: Case, judged: Mapping[str, Sequence[Judgement]], waivers: Sequence[Waiver], today: datetime.date | None
) -> Applied:
    """The judgements with `waivers` applied that count on the day of the run, `today`; None where that is not known."""
    unseen = unmeasured_nodes(case, judged) if waivers else {}
    out = Applied(dict(judged))
    for waiver in waivers:
        covered: list[str] = []
        why = _expired(waiver, today)
        if waiver.criterion not in judged:
            why = "no such criterion"
        if not why:
            covered, why = _one(case, out, waiver, unseen)
        if why:
            out.notes.append(f"{waiver}: {why}" + ("" if covered else "; it has no effect"))
        out.uses.append(
            WaiverUse(
                criterion=waiver.criterion,
                subject=waiver.subject,
                who=waiver.who,
                when=waiver.when.isoformat(),
                expires=waiver.expires.isoformat(),
                why=waiver.why,
                covered=tuple(covered),
                without_effect=why,
            )
        )
    return out


def unmeasured_nodes(case: Case, judged: Mapping[str, Sequence[Judgement]]) -> dict[str, str]:
    """Nodes of which too little was measured for a waiver -> how much, in words."""
    seen = {node.name: 0 for node in case.topology.nodes}
    total = dict(seen)
    nodes_of = {m.id: m.nodes for m in case.plan.measurements}
    for judgements in judged.values():
        for id_ in judgements.passing if isinstance(judgements, Judgements) else ():
            for node in {*nodes_of.get(id_, ())} & seen.keys():
                total[node] += 1
                seen[node] += 1
        for j in others(judgements):
            if j.verdict == "not-applicable":
                continue
            for node in {n for id_ in j.evidence for n in nodes_of.get(id_, ())} & seen.keys():
                total[node] += 1
                seen[node] += j.reason_code not in LOST
    return {
        node: f"{seen[node]} of {total[node]} judgements on it stand on a measurement"
        for node in seen
        if seen[node] == 0 or seen[node] < MEASURED_SHARE * total[node]
    }


def _expired(waiver: Waiver, today: datetime.date | None) -> str:
    if today is None:
        return "the day of the run is not known"
    if today > waiver.expires:
        return f"it expired on {waiver.expires}, before the day of the run ({today})"
    return ""


def _one(case: Case, out: Applied, waiver: Waiver, unseen: Mapping[str, str]) -> tuple[list[str], str]:
    """Apply one waiver: the subjects that it covers, and words on what it does not cover."""
    words = f"waived by {waiver.who} on {waiver.when} until {waiver.expires}: {waiver.why}"
    judgements = list(out.judged[waiver.criterion])
    out.judged[waiver.criterion] = judgements
    covered: list[str] = []
    refused: dict[str, str] = {}
    nodes_of = {m.id: m.nodes for m in case.plan.measurements}
    for position, j in enumerate(judgements):
        if waiver.subject not in (None, j.subject) or j.verdict not in ("fail", "not-measured"):
            continue
        lost = {n for id_ in j.evidence for n in nodes_of.get(id_, ())} & unseen.keys()
        if j.reason_code in LOST and lost:
            refused |= {node: unseen[node] for node in sorted(lost)}
            continue
        judgements[position] = j.model_copy(
            update={
                "verdict": "waived",
                "reason_code": "waived",
                "reason": f"{words} (was {j.verdict}: {j.reason})",
                "waived": Waived(
                    who=waiver.who,
                    when=waiver.when.isoformat(),
                    until=waiver.expires.isoformat(),
                    why=waiver.why,
                    was=j.verdict,
                ),
            }
        )
        covered.append(j.subject)
    if refused:
        told = "; ".join(f"{node}: {refused[node]}" for node in sorted(refused))
        return covered, f"no waiver stands for a node that was not measured ({told})"
    if covered:
        return covered, ""
    criterion = next(c for c in case.criteria if c.id == waiver.criterion)
    if not case.applies(criterion):
        return [], "the criterion does not apply to this fabric; remove it"
    if not judgements and waiver.subject is None:
        out.whole[waiver.criterion] = words
        return ["all of it"], ""
    if waiver.subject is not None and waiver.subject not in {j.subject for j in judgements}:
        near = difflib.get_close_matches(waiver.subject, [j.subject for j in judgements], n=1)
        return [], "nothing to waive: no such subject" + (f"; did you mean {near[0]}?" if near else "")
    return [], "nothing to waive; remove it"
