"""Judging the long test: the accuracy on the training data by model, as the whitepaper prints it; hours beside it.

Its accuracy is that of the batches that are learned from (`--print_training_accuracy`); which networks have to reach it
after 90 epochs of ImageNet is what section 7.3.1 says. What is no such training is reported, and proves nothing of it.
"""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.measures.training.judge import EPOCHS, IMAGES, hours_published
from validation.measures.training.long_facts import LongTrainingFacts
from validation.model import Bound, Judgement, Measurement
from validation.probes.train_networks import NETWORKS
from validation.rules.criterion import Criterion
from validation.rules.reference import packaged

HELD = ("resnet50", "inception4")
"""Networks of which the document says that they reach it; VGG-19 does not converge acceptably in 90 epochs."""
CLASSES = 1000
FED = 1.2
"""By how much the input by itself has to be faster than training, lest it be what is measured. Project default."""


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
    text = told(facts)
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


def another(facts: LongTrainingFacts) -> str:
    """What the long test is, of a training that is another; "" of the long test."""
    if (facts.epochs, facts.images, facts.classes) == (EPOCHS, IMAGES, CLASSES):
        return ""
    return f"not the long test, which is {EPOCHS} epochs of {IMAGES} images of {CLASSES} classes"


def told(facts: LongTrainingFacts) -> str:
    """What came out, in words."""
    last, hours = facts.curve[-1], facts.seconds / 3600
    trained = sum(line.train_s for line in facts.curve)
    rate = sum(line.images for line in facts.curve) / trained if trained else 0.0
    name = NETWORKS[facts.model].title if facts.model in NETWORKS else facts.model
    words = (
        f"{name}, {number_of(facts.epochs, 'epoch')} of {facts.images} images ({facts.classes} classes, {facts.format}"
        f"{' on ' if facts.storage else ''}{facts.storage}) on "
        f"{facts.world_size} rank{'' if facts.world_size == 1 else 's'}: training top-1 {last.train_top1:.2%}, top-5 "
        f"{last.train_top5:.2%}; validation top-1 {last.val_top1:.2%}, top-5 {last.val_top5:.2%}; {_time(hours)}, "
        f"{_time(trained / 3600)} of them training at {rate:.4g} images/s, {_time(facts.predicted.hours)} predicted"
    )
    fed = facts.predicted.input_images_per_s
    if fed < FED * facts.predicted.images_per_s:
        words += f"; the input by itself gave {fed:.4g} images/s, so that it bounds the rate"
    if facts.resumed:
        words += f"; continued {len(facts.resumed)} time{'' if len(facts.resumed) == 1 else 's'} from a checkpoint"
        words += "; the last time nothing was left to train" if facts.resumed[-1].epoch == facts.epochs else ""
    if (facts.epochs, facts.images) == (EPOCHS, IMAGES) and (beside := hours_published(packaged(), facts.model)):
        words += f"; published: {', '.join(beside)}"
    return words


def _time(hours: float) -> str:
    """In hours, and what is short in seconds."""
    return f"{hours:.3g} h" if hours >= 0.1 else f"{3600 * hours:.3g} s"
