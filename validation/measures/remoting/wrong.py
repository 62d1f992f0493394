"""Judging a count of what must not be, where what happened beside it is reported: on any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.values import bound_of
from validation.model import Judgement, Measurement, Result, Subject
from validation.rules.criterion import Criterion


@dataclass(frozen=True)
class Happened:
    """What a result's facts say. unmade: why nothing was tried, "" where it was. wrong: each thing that must not be;
    None where the facts say nothing of it. text: the rest, reported."""

    unmade: str
    wrong: list[str] | None
    text: str = ""


def judge_wrong(
    case: Case, criterion: Criterion, job: Measurement, subject: Subject, read: Callable[[Result], Happened]
) -> Judgement:
    """At most none, and the measurement's own count is that of its facts; what was not tried has nothing to judge."""
    bound = bound_of(case, criterion)
    gone = unusable(case, criterion, subject, (job.id,), bound)
    if gone is not None:
        return gone
    result = case.latest[job.id]
    happened = read(result)
    if happened.unmade:
        why = f"not measured: {happened.unmade}"
        return judgement(criterion, subject, "not-applicable", "not-applicable", why, [job.id], bound=bound)
    values = [s.value for s in result.samples if (s.metric, s.unit) == (criterion.metric, criterion.unit)]
    if happened.wrong is None or values != [len(happened.wrong)]:
        why = f"{job.id} has a result, but nothing in it that bears out its count of what is wrong"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id], bound=bound)
    amount, wrong, text = float(len(happened.wrong)), happened.wrong, happened.text
    summary = Summary(median=amount, mad=0.0, low=amount, high=amount, count=1)
    if wrong:
        why = f"{'; '.join(wrong)}; {text}"
        return judgement(criterion, subject, "fail", "above-maximum", why, [job.id], summary=summary, bound=bound)
    return judgement(criterion, subject, "pass", "within-bounds", text, [job.id], summary=summary, bound=bound)
