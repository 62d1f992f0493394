"""Judging what must not happen more than so often or by more than so much: the worst of a measurement's samples.

A median would hide a breach among attempts; here 0 is a value like any other, and one too many fails.
"""

from __future__ import annotations

import math

from validation.analysis.stats import Summary
from validation.criterion import Criterion
from validation.judging.case import Case, judgement, unusable
from validation.judging.values import bound_of
from validation.model import Judgement, Measurement, ReasonCode, VerdictName


def subject_of(measurement: Measurement) -> str:
    """The GPU server that was tried, or the client that was measured from; with the parts where a whole was cut."""
    server, parts = measurement.params.get("server"), measurement.params.get("parts")
    subject = str(server) if server else measurement.nodes[0]
    return f"{subject}, {str(parts).replace(',', ' + ')}" if parts else subject


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
        values = [s.value for s in result.samples if (s.metric, s.unit) == (criterion.metric, criterion.unit)]
        if not values or not all(math.isfinite(v) and v >= 0 for v in values) or bound is None:
            why = f"{m.id} has a result, but no usable {criterion.metric} in {criterion.unit} in it"
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
