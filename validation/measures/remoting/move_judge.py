"""Judging a GPU that changed hands: nothing is lost or held twice, on any device; how long it took is reported."""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import bound_of
from validation.measures.remoting.move_facts import Moved, MoveFacts
from validation.model import Judgement, Measurement, Subject
from validation.rules.criterion import Criterion


def said(it: Moved) -> str:
    """What happened when, in words."""
    told = (
        "not notified"
        if it.told_s is None
        else f"notified after {it.told_s:.1f} s, its work kept after {it.saved_s or 0:.1f} s"
    )
    where = "elsewhere" if it.elsewhere else "on the same GPU"
    lost = (
        "" if it.steps_lost is None else f", {it.steps_lost} of {number_of(it.steps_kept + it.steps_lost, 'step')} lost"
    )
    return (
        f"{it.took} took a GPU from {it.gave}: {told}, given back after {it.gone_s:.1f} s; the other's first step "
        f"after {it.first_step_s:.1f} s; it went on {where} after {it.resumed_s:.1f} s{lost}"
    )


@method("remote-move", "what must not be where a GPU changes hands under a program that trains, and how long it took")
def judge_remote_move(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each measurement; a pool whose policy lets nobody take a GPU back has nothing to judge, with that reason."""
    return [_move(case, criterion, job) for job in case.serving(criterion)]


def _move(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, bound = Subject.node(str(job.params.get("server") or job.nodes[-1])), bound_of(case, criterion)
    gone = unusable(case, criterion, subject, (job.id,), bound)
    if gone is not None:
        return gone
    result = case.latest[job.id]
    facts = result.facts_of(MoveFacts)
    if facts is not None and facts.unmade:
        why = f"not measured: {facts.unmade}"
        return judgement(criterion, subject, "not-applicable", "not-applicable", why, [job.id], bound=bound)
    values = [s.value for s in result.samples if (s.metric, s.unit) == (criterion.metric, criterion.unit)]
    if facts is None or facts.moved is None or values != [len(facts.wrong())]:
        why = f"{job.id} has a result, but nothing in it that bears out its count of what is wrong"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id], bound=bound)
    text, wrong = said(facts.moved), facts.wrong()
    emulated = " (GPUs are emulated: the times are those of the pool, not of a GPU)" if facts.emulated else ""
    count = float(len(wrong))
    summary = Summary(median=count, mad=0.0, low=count, high=count, count=1)
    if wrong:
        why = f"{'; '.join(wrong)}; {text}{emulated}"
        return judgement(criterion, subject, "fail", "above-maximum", why, [job.id], summary=summary, bound=bound)
    return judgement(
        criterion, subject, "pass", "within-bounds", f"{text}{emulated}", [job.id], summary=summary, bound=bound
    )
