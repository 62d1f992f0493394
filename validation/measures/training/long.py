"""Facts of a long training: its learning curve, and what it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, json_object, short
from validation.measures.training import parse as training_parse
from validation.measures.training.training_short_probe import REPORT
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Facts
from validation.probes import ProbeDoc
from validation.probes.train_course import learning_rate

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Epoch(Model):
    """A line of the learning curve. `train_*` are of the pictures as they were learned from, `val_*` of whole ones
    after the epoch; losses in nats, times of the slowest rank; `input_s` is that part of `train_s` that ranks waited
    for pictures.
    """

    epoch: Count
    rate: Above
    images: Count
    loss: Seconds
    train_top1: Share
    train_top5: Share
    val_images: Count
    val_loss: Seconds
    val_top1: Share
    val_top5: Share
    train_s: Seconds
    input_s: Seconds
    val_s: Seconds
    images_per_s: Above


class Prediction(Model):
    """Before it began: seconds of a step, images/s, images/s of the input by itself, hours of training at that rate."""

    step_s: Above
    images_per_s: Above
    input_images_per_s: Above
    hours: Above


class Mark(Model):
    """Where a training went on: epochs and steps of the next one that were done."""

    epoch: Count
    step: Count


class LongTrainingFacts(Facts):
    """What a long training says of itself. `seconds`: training, validation and checkpoints of all its parts, without
    what was lost and done again. `steps`: of an epoch. `resumed`: each time that it went on from a checkpoint.
    """

    type: Literal["training-long"] = "training-long"
    world_size: Count
    hosts: tuple[str, ...]  # of each rank
    devices: tuple[str, ...]
    model: str
    precision: str
    batch: Count
    epochs: Count
    seed: Count
    framework: str
    launcher: str = ""  # mpirun or torchrun
    format: Literal["folders", "tar", "tfrecord"]
    storage: str = ""  # file system of the pictures, and its server where that is a network's
    images: Count
    val_images: Count
    classes: Count
    steps: Count
    workers: Count
    checkpoint_steps: Count
    parameters: Count
    curve: tuple[Epoch, ...]
    predicted: Prediction
    resumed: tuple[Mark, ...]
    seconds: Seconds
    threads: Count
    python: str
    torch: str
    horovod: str
    mpi: str = ""


# ----------------------------------------------------------------------------------------------------------------------
# The long training: one line of JSON from rank 0 with the learning curve. Every figure is held against the others.


AGREEMENT = 0.01
ROUNDED_S = 0.0011
"""Seconds are told to the thousandth."""
WHOLE = 1e-6


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Of each epoch `images_per_s`, `loss`, `train_top1`, `train_top5`, `val_loss`, `val_top1` and `val_top5`; of all
    of it `hours`.
    """
    lines = [line for line in doc["stdout"].splitlines() if line.startswith(REPORT)]
    if len(lines) != 1:
        raise ParseError(f"training: {len(lines)} reports from rank 0, exactly one is expected")
    report: dict[str, Any] = json_object(lines[0], "training: rank 0's report")
    if report.get("cannot"):
        raise ParseError(f"training: {short(report['cannot'])}")
    training_parse.as_planned(report, params, (("ranks", "world_size"), ("batch", "batch"), ("epochs", "epochs")))
    for key in ("data_format", "seed"):
        expect(params, key, report[key.removeprefix("data_")], f"training: {key}")
    training_parse.carried(doc, report)
    training_parse.in_that_type(report)
    if report["ranks_agree"] is not True:
        raise ParseError("training: the ranks ended with different models; gradients were not shared")
    known: dict[str, Any] = dict(doc["facts"] or report)
    told = {key: known[key] for key in LongTrainingFacts.model_fields if key in known and key != "type"}
    facts = as_facts(LongTrainingFacts, told, "training: rank 0's report")
    _add_up(facts)
    samples = [
        Sample(metric=metric, value=getattr(line, metric), unit=unit)
        for metric, unit in (
            ("images_per_s", "images/s"), ("loss", "nats"), ("train_top1", "ratio"), ("train_top5", "ratio"),
            ("val_loss", "nats"), ("val_top1", "ratio"), ("val_top5", "ratio"),
        )
        for line in facts.curve
    ]  # fmt: skip
    return [*samples, Sample(metric="hours", value=facts.seconds / 3600, unit="h")], facts


def _add_up(facts: LongTrainingFacts) -> None:
    """ParseError where the curve does not follow from what was trained."""
    step = facts.world_size * facts.batch
    if [line.epoch for line in facts.curve] != list(range(1, facts.epochs + 1)):
        raise ParseError(f"training: {number_of(len(facts.curve), 'line')} of {number_of(facts.epochs, 'epoch')}")
    if not step or facts.steps != facts.images // step:
        raise ParseError(
            f"training: {number_of(facts.steps, 'step')} of {step} images do not fit {facts.images} images"
        )
    for line in facts.curve:
        where = f"training: epoch {line.epoch}"
        if line.images != facts.steps * step or line.val_images != facts.val_images:
            raise ParseError(f"{where}: {line.images} and {line.val_images} images are not those of the set")
        for name, total in (("train", line.images), ("val", line.val_images)):
            first, five = getattr(line, f"{name}_top1"), getattr(line, f"{name}_top5")
            if first > five or any(abs(one * total - round(one * total)) > WHOLE * total for one in (first, five)):
                raise ParseError(f"{where}: top-1 {first:g} and top-5 {five:g} are no shares of {total} images")
        want = learning_rate((line.epoch - 1 + (facts.steps - 1) / facts.steps) / facts.epochs, step)
        if abs(line.rate - want) > WHOLE * want:
            raise ParseError(f"{where}: learning rate {line.rate:g}, {want:g} is the schedule's")
        if (
            abs(line.images_per_s * line.train_s - line.images)
            > AGREEMENT * line.images + line.images_per_s * ROUNDED_S
        ):
            raise ParseError(f"{where}: {line.images_per_s:g} images/s do not fit {line.train_s:g} s")
        if line.input_s > line.train_s + ROUNDED_S:
            raise ParseError(f"{where}: ranks waited {line.input_s:g} s of {line.train_s:g} s for pictures")
    told = facts.predicted
    hours = facts.epochs * facts.steps * told.step_s / 3600
    if abs(told.images_per_s * told.step_s - step) > AGREEMENT * step or abs(told.hours - hours) > AGREEMENT * hours:
        raise ParseError("training: the prediction does not fit its own rate")
    least = sum(line.train_s + line.val_s for line in facts.curve)
    if facts.seconds < (1 - AGREEMENT) * least - len(facts.curve) * ROUNDED_S:
        raise ParseError(f"training: {facts.seconds:g} s in all are less than the {least:g} s of its epochs")
