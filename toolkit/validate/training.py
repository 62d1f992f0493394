"""What is asked of suite training: the options of a plan, and the long test by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.errors import UsageFault

if TYPE_CHECKING:
    from validation.model import Scalar

LONG_SUITES = ("preflight", "training")
OPTIONS = {
    "models": "--models",
    "batches": "--batch",
    "gpus": "--gpus",
    "precisions": "--dtype",
    "images": "--images",
    "decoders": "--decoders",
    "framework": "--framework",
    "tf_cnn_benchmarks": "--tf-cnn-benchmarks",
    "data": "--data",
    "checkpoints": "--checkpoints",
    "epochs": "--epochs",
    "checkpoint_steps": "--checkpoint-steps",
    "limit_hours": "--limit-hours",
}
"""Option of the plan -> the option of the command line that it comes from."""


@dataclass(frozen=True)
class TrainingRequest:
    """`long`: the long test and nothing else of the suite; `options`: the plan's, as far as they were given."""

    long: bool
    options: dict[str, Scalar]

    def refuse_of_old_run(self, old: bool) -> None:
        """UsageFault where there is anything and the run exists already, or is none of a fabric."""
        if old and (self.long or self.options):
            given = [*(["--long"] if self.long else []), *(OPTIONS[key] for key in self.options)]
            raise UsageFault(
                f"{', '.join(given)}: of a new run of suite training over a fabric; --resume goes on with what the "
                "run was asked for"
            )

    def suites(self, suites: tuple[str, ...]) -> tuple[str, ...]:
        """The suites of the run. UsageFault for what contradicts the long test, or wants it and does not have it."""
        if not self.long:
            alone = [key for key in ("epochs", "checkpoint_steps", "limit_hours") if key in self.options]
            if alone and "data" not in self.options:
                raise UsageFault(f"{OPTIONS[alone[0]]} is of the long test; give --data DIR, or --long with it")
            return suites
        others = [name for name in suites if name not in LONG_SUITES]
        if others:
            raise UsageFault(f"--long runs the long test by itself; omit --suite {others[0]}, or give --data alone")
        if "data" not in self.options:
            raise UsageFault("--long: --data DIR is missing: the folder with the pictures, or tiny")
        return LONG_SUITES

    def plan_options(self) -> dict[str, Scalar]:
        """The plan's options."""
        return {**self.options, **({"alone": 1} if self.long else {})}
