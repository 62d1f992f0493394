"""Facts of a long training: its learning curve, and what it was trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts

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
