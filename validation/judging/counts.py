"""Judging what must not happen more than so often or by more than so much: the worst of a measurement's samples.

A median would hide a breach among attempts; here 0 is a value like any other, and one too many fails. What a result's
own facts say of them must bear the number out.
"""

from __future__ import annotations

import math

from validation.analysis.stats import Summary
from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.judging.values import bound_of
from validation.kinds.record import names
from validation.model import Judgement, Measurement, ReasonCode, Result, Subject, VerdictName
from validation.parsers.remoting import ATTEMPTS


def subject_of(measurement: Measurement) -> Subject:
    """The GPU server that was tried, or the client that was measured from; with the parts where a whole was cut."""
    server, parts = measurement.params.get("server"), names(measurement, "parts")
    return Subject.node(str(server) if server else measurement.nodes[0], " + ".join(parts))


def _texts(result: Result, key: str) -> list[str] | None:
    found = result.facts.get(key)
    return found if isinstance(found, list) else None


def _attempts(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the attempts on isolation do not bear out the number of breaches, "" where they do.

    Each outcome tells how its own attempt ended, `refused: NAME: ...` or `BREACH: NAME: ...`, in order; anything else
    is no refusal.
    """
    made, outcomes, breached = (_texts(result, key) for key in ("attempts", "outcomes", "breached"))
    if made is None or outcomes is None or breached is None:
        lacks = [key for key in ("attempts", "outcomes", "breached") if _texts(result, key) is None]
        return f"its facts lack {', '.join(lacks)}"
    elsewhere = measurement.params.get("elsewhere")
    wanted = (*ATTEMPTS, *([f"a connection from {elsewhere}"] if elsewhere else []))
    missing = [name for name in wanted if name not in made]
    if missing or len(set(made)) != len(made):
        return f"of its attempts {missing[0]!r} was not made" if missing else "it lists an attempt twice"
    if len(outcomes) != len(made):
        return f"{len(outcomes)} outcomes of {len(made)} attempts"
    through = []
    for name, words in zip(made, outcomes, strict=True):
        if words.startswith(f"BREACH: {name}:"):
            through.append(name)
        elif not words.startswith(f"refused: {name}:"):
            return f"{words[:60]!r} does not say that {name!r} was refused"
    if breached != through or worst != len(through):
        return (
            f"its count of {worst:g}, {len(breached)} named breaches and {len(through)} outcomes contradict each other"
        )
    return ""


def _matrix(measurement: Measurement, result: Result, worst: float) -> str:
    """Why the matrix of copies is not whole, "" where it has a line for each ordered pair of host and GPUs."""
    devices, matrix = _texts(result, "devices"), _texts(result, "matrix")
    if not devices or matrix is None:
        return "its facts lack devices or matrix"
    ends = ["H", *map(str, range(len(devices)))]
    wanted = [f"{a} to {b}" for a in ends for b in ends if (a, b) != ("H", "H")]
    found = [line.partition(":")[0] for line in matrix]
    holes = [pair for pair in wanted if pair not in found]
    if holes or len(found) != len(wanted):
        return f"its matrix has {len(found)} lines of {len(wanted)}" + (f", none {holes[0]}" if holes else "")
    return ""


def _nothing(measurement: Measurement, result: Result, worst: float) -> str:
    return ""


_CHECKS = {"remoting-isolate": _attempts, "remoting-copy": _matrix}


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
        mine = [s for s in result.samples if s.metric == criterion.metric]
        values = [s.value for s in mine]
        why = ""
        if not values or not all(math.isfinite(v) and v >= 0 for v in values) or bound is None:
            why = f"{m.id} has a result, but no usable {criterion.metric} in {criterion.unit} in it"
        elif other := sorted({s.unit for s in mine} - {criterion.unit}):
            why = f"{m.id}: {criterion.metric} in {', '.join(other)} instead of {criterion.unit}"
        elif unsaid := _CHECKS.get(m.kind, _nothing)(m, result, max(values)):
            why = f"{m.id}: {unsaid}"
        if why or bound is None:
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, evidence, bound=bound))
            continue
        worst, most = max(values), bound.maximum if bound.maximum is not None else 0.0
        fine = worst <= most
        names = result.facts.get("breached")
        which = f": {'; '.join(names)}" if isinstance(names, list) and names else ""
        verdict: VerdictName = "pass" if fine else "fail"
        code: ReasonCode = "within-bounds" if fine else "above-maximum"
        summary = Summary(median=worst, mad=0.0, low=worst, high=worst, count=len(values))
        reason = f"{worst:.4g} {criterion.metric} ({criterion.unit}), at most {most:g}{which}"
        judged.append(judgement(criterion, subject, verdict, code, reason, evidence, summary=summary, bound=bound))
    return judged
