"""Judging a tenant beside a neighbour that does its worst: its rate over that alone, reported; its results, judged."""

from __future__ import annotations

from validation.analysis.scaling import efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, impossible, most_of
from validation.measures.remoting.neighbours_facts import NeighbourFacts
from validation.measures.remoting.neighbours_parse import metric_of
from validation.model import Judgement, Measurement, Subject
from validation.rules.criterion import Criterion


def _rates(case: Case, job: Measurement, which: str) -> list[float] | str:
    tries = case.tries(job.id)
    found = [s.value for r in tries for s in r.samples if s.metric == metric_of(which) and s.unit == STEPS]
    turns, steps = int(str(job.params.get("turns", 0))), int(str(job.params.get("steps", 0)))
    if not found or len(found) != len(tries) * turns * (steps - 1):
        return f"{job.id}: {which}: not all of {number_of(turns, 'turn')} with {number_of(steps, 'step')} are there"
    return impossible(found, STEPS, "", most_of(case, None, found, STEPS)) or found


@method("remote-noise", "a tenant's training beside a neighbour that does its worst over the same alone")
def judge_remote_noise(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each server; a tenant that fails or computes something else beside its neighbour fails on any device."""
    return [_noise(case, criterion, job) for job in case.serving(criterion)]


def _noise(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = Subject.node(str(job.params.get("server") or job.nodes[-1]))
    gone = unusable(case, criterion, subject, (job.id,), None)
    if gone is not None:
        return gone
    tries = case.tries(job.id)
    facts = [known for r in tries if (known := r.facts_of(NeighbourFacts)) is not None]
    if not facts or len(facts) != len(tries):
        why = f"{job.id} has a result, but no tenant in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    if wrong := [words for known in facts for words in (*known.harmed("alone"), *known.harmed("noise"))]:
        return judgement(criterion, subject, "fail", "not-equal", "; ".join(wrong[:4]), [job.id])
    noise, alone = _rates(case, job, "noise"), _rates(case, job, "alone")
    if isinstance(noise, str) or isinstance(alone, str):
        why = noise if isinstance(noise, str) else str(alone)
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    found = efficiency(noise, alone, 1)
    text = f"beside a neighbour {found.rate:.4g} / alone {found.single:.4g} images/s = {found.value:.3f}"
    count = min(len(noise), len(alone))
    summary = Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=count)
    emulated = "GPUs are emulated: " if any(known.emulated for known in facts) else ""
    why = f"reported: {emulated}{text}"
    return judgement(criterion, subject, "not-applicable", "reported", why, [job.id], summary=summary, text=text)
