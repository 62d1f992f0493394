"""Judging the long test: the accuracy on the training data by model, as the whitepaper prints it; hours beside it.

Its accuracy is that of the batches that are learned from (`--print_training_accuracy`); which networks have to reach it
after 90 epochs of ImageNet is what section 7.3.1 says. What is no such training is reported, and proves nothing of it.
"""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.measures.training.long import LongTrainingFacts
from validation.measures.training.long_outcome import another, hours_published, outcome
from validation.model import Bound, Judgement, Measurement
from validation.probes.train_networks import NETWORKS
from validation.rules.criterion import Criterion
from validation.rules.reference import packaged

HELD = ("resnet50", "inception4")
"""Networks of which the document says that they reach it; VGG-19 does not converge acceptably in 90 epochs."""


@method("long", "accuracy on the training data after the whole long test, by model", counts="jobs")
def judge_long(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each long training."""
    return [_judge(case, criterion, job) for job in case.serving(criterion)]


def _judge(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, floor = subject_of(job), criterion.bound.value or 0.0
    bound = Bound(
        metric="train_top5", unit="ratio", floor=floor, derivation=(criterion.bound.words,), source=criterion.source
    )
    facts = facts_for(case, criterion, subject, job.id, LongTrainingFacts, bound)
    if isinstance(facts, Judgement):
        return facts
    last = facts.curve[-1]
    shown = Summary(last.train_top5, 0.0, last.train_top5, last.train_top5, 1)
    text = outcome(facts)
    if case.virtual or case.emulated(job):
        why = f"{text}; {criterion.rehearsal.why}"
        return judgement(
            criterion, subject, "not-measured", "virtual", why, [job.id], summary=shown, text=text, bound=bound
        )
    if other := another(facts):
        why = f"{other}: {text}"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id], summary=shown, text=text)
    if facts.model not in HELD:
        why = f"reported: the document holds {' and '.join(NETWORKS[one].title for one in HELD)} to it; {text}"
        return judgement(criterion, subject, "not-applicable", "reported", why, [job.id], summary=shown, text=text)
    if last.train_top5 < floor:
        why = f"training top-5 {last.train_top5:.2%} is below {floor:.2%}; {text}"
        return judgement(
            criterion, subject, "fail", "below-floor", why, [job.id], summary=shown, text=text, bound=bound
        )
    return judgement(criterion, subject, "pass", "within-bounds", text, [job.id], summary=shown, text=text, bound=bound)


@method("long-hours", "how long the whole long test took, by model", counts="jobs")
def judge_hours(case: Case, criterion: Criterion) -> list[Judgement]:
    """Hours of each long training that is the long test of the document: what its claims are held against."""
    return [_hours(case, criterion, job) for job in case.serving(criterion)]


def _hours(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, ids = subject_of(job), [job.id]
    facts = facts_for(case, criterion, subject, job.id, LongTrainingFacts, None)
    if isinstance(facts, Judgement):
        return facts
    if other := another(facts):
        return judgement(criterion, subject, "not-applicable", "reported", other, ids)
    hours = facts.seconds / 3600
    text = f"{facts.epochs} epochs of {facts.images} images in {hours:.3g} h"
    beside = "; ".join(hours_published(packaged(), facts.model))
    text += f"; published: {beside}" if beside else ""
    shown = Summary(hours, 0.0, hours, hours, 1)
    why = f"reported, not judged: {text}"
    return judgement(criterion, subject, "not-applicable", "reported", why, ids, summary=shown, text=text)
