"""What came out of a long training, in words, and whether it is the long test of the documents."""

from __future__ import annotations

from validation.base.counting import number_of
from validation.measures.training.long import LongTrainingFacts
from validation.plan.offered import EPOCHS
from validation.probes.train_networks import NETWORKS
from validation.rules.reference import Reference, packaged

IMAGES = 1_281_167
"""Of the long test: images of ILSVRC2012's training set."""
CLASSES = 1000
FED = 1.2
"""By how much the input by itself has to be faster than training, lest it be what is measured. Project default."""


def hours_published(reference: Reference, model: str) -> list[str]:
    """Hours that the documents have of a network, with the machine."""
    found = [
        claim
        for claim in reference.claims.values()
        if claim.published is not None and claim.published.unit == "h" and claim.conditions.get("model") == model
    ]
    return [
        f"{reference.machines[key].short} {c.published.printed}" for c in found for key in c.machines if c.published
    ]


def another(facts: LongTrainingFacts) -> str:
    """What the long test is, of a training that is another; "" of the long test."""
    if (facts.epochs, facts.images, facts.classes) == (EPOCHS, IMAGES, CLASSES):
        return ""
    return f"not the long test, which is {EPOCHS} epochs of {IMAGES} images of {CLASSES} classes"


def outcome(facts: LongTrainingFacts) -> str:
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
