"""The options of `toolkit validate` that are of suite training, and what they ask the plan for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from toolkit.errors import UsageFault
from validation.model import Scalar
from validation.plan.suites.training_choice import FRAMEWORKS
from validation.plan.suites.training_long import EPOCHS, IN_MEMORY, LIMIT_HOURS
from validation.probes.train_networks import NETWORKS, PRECISIONS

LONG_SUITES = ("preflight", "training")

_WORDS: tuple[tuple[str, str, str, str], ...] = (
    ("--models", "models", "NAME,...", f"Train these networks: {', '.join(NETWORKS)}.  [default: by the servers]"),
    ("--batch", "batches", "N,...", "Take so many images per GPU and step.  [default: 128 on GPUs]"),
    ("--gpus", "gpus", "N,...", "Train on this many GPUs.  [default: 1, those of a server, all]"),
    ("--dtype", "precisions", "NAME,...",
     f"Train in these number formats: {', '.join(PRECISIONS)}.  [default: fp16 on GPUs, else fp32]"),
    ("--images", "images", "DIR", "Train on pictures of this folder beside synthetic images (tn.cpu).  [default: "
     "pictures that the toolkit makes]"),
    ("--framework", "framework", "NAME", f"Train on processors with {' or '.join(FRAMEWORKS)}.  [default: torch]"),
    ("--tf-cnn-benchmarks", "tf_cnn_benchmarks", "PATH", "Run tf_cnn_benchmarks.py of the training container too."),
    ("--data", "data", "DIR", "Run the long test on these pictures, a folder on every GPU server, or on tiny, a small "
     "set that is made there."),
    ("--checkpoints", "checkpoints", "DIR", "Keep the checkpoints of the long test in this folder on the GPU servers, "
     f"best one that they share.  [default, of a lab alone: {IN_MEMORY}]"),
)  # fmt: skip
_NUMBERS = (
    ("--epochs", "epochs", click.IntRange(1, 10_000), f"Run the long test for so many epochs.  [default: {EPOCHS}]"),
    ("--checkpoint-steps", "checkpoint_steps", click.IntRange(1),
     "Write a checkpoint of the long test every so many steps.  [default: ten minutes]"),
    ("--limit-hours", "limit_hours", click.IntRange(1, 8760), f"End the long test after that.  [default: "
     f"{LIMIT_HOURS}]"),
)  # fmt: skip


@dataclass(frozen=True)
class Training:
    """What was asked for of suite training: `long`, the long test and nothing else of it; the plan's options."""

    long: bool
    options: dict[str, Scalar]

    def refuse_of_old_run(self, old: bool) -> None:
        """UsageFault where there is anything and the run exists already, or is none of a fabric."""
        if old and (self.long or self.options):
            raise UsageFault(
                f"{', '.join([*(['--long'] if self.long else []), *(named(key) for key in self.options)])}: of a new "
                "run of suite training over a fabric; --resume goes on with what the run was asked for"
            )

    def suites(self, suites: tuple[str, ...]) -> tuple[str, ...]:
        """The suites of the run. UsageFault for what contradicts the long test, or wants it and does not have it."""
        if not self.long:
            alone = [key for key in ("epochs", "checkpoint_steps", "limit_hours") if key in self.options]
            if alone and "data" not in self.options:
                raise UsageFault(f"{named(alone[0])} is of the long test; give --data DIR, or --long with it")
            return suites
        others = [name for name in suites if name not in LONG_SUITES]
        if others:
            raise UsageFault(f"--long runs the long test by itself; omit --suite {others[0]}, or give --data alone")
        if "data" not in self.options:
            raise UsageFault("--long: --data DIR is missing: the folder with the pictures, or tiny")
        return LONG_SUITES

    def asked(self) -> dict[str, Scalar]:
        """The plan's options."""
        return {**self.options, **({"alone": 1} if self.long else {})}


def named(key: str) -> str:
    """The option of the command line that an option of the plan comes from."""
    return next(row[0] for row in (*_WORDS, *_NUMBERS) if row[1] == key)


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What suite training trains: many options, one argument `training` of the command."""
    keys = [row[1] for row in (*_WORDS, *_NUMBERS)]

    @functools.wraps(command)
    def with_training(*args: Any, **given: Any) -> Any:
        values = {key: given.pop(key) for key in keys}
        asked = {key: value for key, value in values.items() if value is not None}
        return command(*args, training=Training(given.pop("long_test"), asked), **given)

    made: Callable[..., Any] = with_training
    for number in reversed(_NUMBERS):
        made = click.option(number[0], number[1], type=number[2], help=number[3])(made)
    for name, key, metavar, words in reversed(_WORDS):
        made = click.option(name, key, metavar=metavar, help=words)(made)
    words = "Train one network to an accuracy, for hours, and measure nothing else of the suite; takes --data."
    return click.option("--long", "long_test", is_flag=True, help=words)(made)
