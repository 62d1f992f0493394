"""Judging what must not happen more than so often or by more than so much: the worst of a measurement's samples.

A median would hide a breach among attempts; here 0 is a value like any other, and one too many fails. What a result's
own facts say of them must bear the number out.
"""

from __future__ import annotations

import math

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import bound_of
from validation.kinds.record import names
from validation.measures.remoting.facts import CopyFacts, IsolationFacts
from validation.measures.remoting.neighbours import NeighbourFacts, NoRebootFacts
from validation.measures.remoting.remoting_unchanged_probe import WAYS
from validation.measures.remoting.train import MadeLink, RemoteTrainFacts, loaded
from validation.measures.remoting.unchanged import UnchangedFacts
from validation.model import Judgement, Measurement, ReasonCode, Result, Subject, VerdictName
from validation.probes.remoting_program import ENGINE
from validation.rules.criterion import Criterion


def subject_of(measurement: Measurement) -> Subject:
    """The GPU server that was tried, or the client that was measured from; whether PyTorch programs measured; the
    parts where a whole was cut, or the link that was made.
    """
    server, parts = measurement.params.get("server"), names(measurement, "parts")
    link = MadeLink.of(measurement.params)
    program = loaded(measurement) or ("by PyTorch" if measurement.params.get("engine") == ENGINE else "")
    words = ", ".join(filter(None, (link.words if link else "", program, " + ".join(parts))))
    return Subject.node(str(server) if server else measurement.nodes[0], words)


def _attempts(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the attempts on isolation do not bear out the number of breaches, "" where they do."""
    facts = result.facts_of(IsolationFacts)
    if facts is None:
        return "it has no facts"
    if fault := facts.fault(measurement.params.get("elsewhere")):
        return fault
    if worst != len(facts.breaches):
        return f"its count of {worst:g} and {len(facts.breaches)} breaches contradict each other"
    return ""


def _matrix(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the matrix of copies is not whole, "" where it has each ordered pair of the client's memory and GPUs."""
    facts = result.facts_of(CopyFacts)
    if facts is None or not facts.devices:
        return "its facts name no GPUs"
    return f"its matrix lacks {number_of(len(facts.holes), 'pair')}" if facts.holes else ""


def _same(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the trainings do not bear out how many of them differ, "" where they do."""
    facts = result.facts_of(RemoteTrainFacts)
    if facts is None:
        return "it has no facts"
    params = measurement.params
    planned = len(names(measurement, "batches")) * 2 * int(str(params.get("turns", 0)))
    if len(facts.runs) != planned or any(len(run.losses) != params.get("steps") for run in facts.runs):
        return f"its facts have {len(facts.runs)} of {planned} trainings, or not all steps of them"
    if worst != len(facts.differing()):
        return f"its count of {worst:g} and {len(facts.differing())} trainings that differ contradict each other"
    return ""


def _fault(measurement: Measurement, result: Result, worst: float) -> str:
    """Why a neighbour's faults do not bear out what they did, "" where they do."""
    facts = result.facts_of(NeighbourFacts)
    if facts is None:
        return "it has no facts"
    turns = int(str(measurement.params.get("turns", 0)))
    if len(facts.ends) != turns or sum(run.beside == "fault" for run in facts.runs) != turns:
        return f"its facts have not all {turns} faults"
    if worst != len(facts.by_fault()):
        return (
            f"its count of {worst:g} and {number_of(len(facts.by_fault()), 'thing')} that a fault did "
            "contradict each other"
        )
    return ""


def _boots(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the boot ids do not bear out the number of reboots, "" where they do."""
    facts = result.facts_of(NoRebootFacts)
    if facts is None:
        return "it has no facts"
    if tuple("+".join(change.parts) for change in facts.changes) != names(measurement, "wholes"):
        return "its changes are not those of the plan"
    if worst != len(facts.reboots()):
        return f"its count of {worst:g} and {number_of(len(facts.reboots()), 'reboot')} contradict each other"
    return ""


def _unchanged(measurement: Measurement, result: Result, worst: float) -> str:
    """Why a program's three ways do not bear out the number of changes, "" where they do."""
    facts = result.facts_of(UnchangedFacts)
    if facts is None:
        return "it has no facts"
    if tuple(run.way for run in facts.runs) != WAYS:
        return "its facts have not all three ways"
    if worst != len(facts.changes()):
        return f"its count of {worst:g} and {len(facts.changes())} changes contradict each other"
    return ""


def _nothing(measurement: Measurement, result: Result, worst: float) -> str:
    return ""


def _processors(result: Result) -> str:
    """The processors that computed something wrong, in words."""
    wrong = result.facts.get("wrong_processors") if isinstance(result.facts, dict) else None
    return f": processors {', '.join(map(str, wrong))}" if isinstance(wrong, list) and wrong else ""


_CHECKS = {"remoting-isolate": _attempts, "remoting-copy": _matrix, "remoting-train": _same}
_CHECKS |= {"remoting-neighbours": _fault, "remoting-noreboot": _boots, "remoting-unchanged": _unchanged}


@method("count", "the largest sample, of which 0 is one too, against the bound")
def judge_counts(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each measurement that serves the criterion: its largest sample against the bound."""
    bound = bound_of(case, criterion)
    judged = []
    for m in case.serving(criterion):
        subject, evidence = subject_of(m), (m.id,)
        gone = unusable(case, criterion, subject, evidence, bound)
        if gone is not None:
            judged.append(gone)
            continue
        result = case.latest[m.id]
        mine = result.samples_in(criterion.metric or "")
        values = [value for some in mine.values() for value in some]
        why = ""
        if not values or not all(math.isfinite(v) and v >= 0 for v in values) or bound is None:
            why = f"{m.id} has a result, but no usable {criterion.metric} in {criterion.unit} in it"
        elif other := sorted(mine.keys() - {criterion.unit}):
            why = f"{m.id}: {criterion.metric} in {', '.join(other)} instead of {criterion.unit}"
        elif unsaid := _CHECKS.get(m.kind, _nothing)(m, result, max(values)):
            why = f"{m.id}: {unsaid}"
        if why or bound is None:
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, evidence, bound=bound))
            continue
        worst, most = max(values), bound.maximum if bound.maximum is not None else 0.0
        fine = worst <= most
        tried = result.facts_of(IsolationFacts)
        which = f": {'; '.join(tried.breaches)}" if tried is not None and tried.breaches else ""
        if tried is not None and tried.unpromised:
            which += f"; possible, and not promised by the engine {tried.engine}: {', '.join(tried.unpromised)}"
        which += _processors(result)
        kept = result.facts_of(UnchangedFacts)
        which += f": {'; '.join(kept.changes()[:4])}" if kept is not None and worst else ""
        trained = result.facts_of(RemoteTrainFacts)
        which += f": {'; '.join(map(str, trained.differing()[:4]))}" if trained is not None and worst else ""
        beside, boots = result.facts_of(NeighbourFacts), result.facts_of(NoRebootFacts)
        which += f": {'; '.join(beside.by_fault()[:4])}" if beside is not None and worst else ""
        which += f": {'; '.join(boots.reboots()[:4])}" if boots is not None and worst else ""
        verdict: VerdictName = "pass" if fine else "fail"
        code: ReasonCode = "within-bounds" if fine else "above-maximum"
        summary = Summary(median=worst, mad=0.0, low=worst, high=worst, count=len(values))
        reason = f"{worst:.4g} {criterion.metric} ({criterion.unit}), at most {most:g}{which}"
        judged.append(judgement(criterion, subject, verdict, code, reason, evidence, summary=summary, bound=bound))
    return judged
