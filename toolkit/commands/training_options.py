"""The options of `toolkit validate` that are of suite training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from toolkit.validate.training import OPTIONS, TrainingRequest
from validation.plan.offered import EPOCHS, FRAMEWORKS, IN_MEMORY, LIMIT_HOURS
from validation.probes.train_networks import NETWORKS, PRECISIONS

_TEXTS: tuple[tuple[str, str, str], ...] = (
    ("models", "NAME,...", f"Train these networks: {', '.join(NETWORKS)}.  [default: by the servers]"),
    ("batches", "N,...", "Take so many images per GPU and step.  [default: 128 on GPUs]"),
    ("gpus", "N,...", "Train on this many GPUs.  [default: 1, those of a server, all]"),
    ("precisions", "NAME,...",
     f"Train in these number formats: {', '.join(PRECISIONS)}.  [default: fp16 on GPUs, else fp32]"),
    ("images", "DIR", "Train on pictures of this folder beside synthetic images (tn.cpu).  [default: "
     "pictures that the toolkit makes]"),
    ("decoders", "NAME,...", "Train transformers: tiny on processors, 1b and 8b on GPUs.  [default: none]"),
    ("framework", "NAME", f"Train on processors with {' or '.join(FRAMEWORKS)}.  [default: torch]"),
    ("tf_cnn_benchmarks", "PATH", "Run tf_cnn_benchmarks.py of the training container too."),
    ("data", "DIR", "Run the long test on these pictures, a folder on every GPU server, or on tiny, a small "
     "set that is made there."),
    ("checkpoints", "DIR", "Keep the checkpoints of the long test in this folder on the GPU servers, "
     f"best one that they share.  [default, of a lab alone: {IN_MEMORY}]"),
)  # fmt: skip
_NUMBERS = (
    ("epochs", click.IntRange(1, 10_000), f"Run the long test for so many epochs.  [default: {EPOCHS}]"),
    ("checkpoint_steps", click.IntRange(1),
     "Write a checkpoint of the long test every so many steps.  [default: ten minutes]"),
    ("limit_hours", click.IntRange(1, 8760), f"End the long test after that.  [default: "
     f"{LIMIT_HOURS}]"),
)  # fmt: skip


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What suite training trains; `training_request` makes one value of them."""
    made = command
    for key, kind, words in reversed(_NUMBERS):
        made = click.option(OPTIONS[key], key, type=kind, help=words)(made)
    for key, metavar, words in reversed(_TEXTS):
        made = click.option(OPTIONS[key], key, metavar=metavar, help=words)(made)
    words = "Train one network to an accuracy, for hours, and measure nothing else of the suite; takes --data."
    return click.option("--long", "long_test", is_flag=True, help=words)(made)


def training_request(given: Mapping[str, Any]) -> TrainingRequest:
    """Of all values of the command line those of suite training."""
    return TrainingRequest(given["long_test"], {key: given[key] for key in OPTIONS if given[key] is not None})
