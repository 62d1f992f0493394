"""Facts of answers natively and remotely, in turns (kind remoting-infer)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.measures.remoting.train_facts import Way
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once


class InferRun(Model):
    """One job of elastic-ai-train --infer. The times are of each step but the first, which pays for what is done once:
    the one that half of them (99 of 100) do not exceed. answers_sha256: of the last step's answers.
    """

    way: Way
    turn: Count
    batch: Count = Field(ge=1)
    images_per_s: Positive
    p50_us: Positive
    p99_us: Positive
    answers_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class InferFacts(Remoting):
    """The same answers of the same GPU in both ways, with several batch sizes, in the order in which they came."""

    type: Literal["remote-infer"] = "remote-infer"
    server: str
    device: Name
    inputs: Count
    hidden: Count
    steps: Count = Field(ge=2)
    runs: tuple[InferRun, ...] = Field(min_length=1)

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[InferRun, ...]) -> tuple[InferRun, ...]:
        for batch in {run.batch for run in runs}:
            if {run.way for run in runs if run.batch == batch} != {"native", "remote"}:
                raise ValueError(f"batch {batch} was not answered both ways")
        return once(runs, "way", "turn", "batch")

    def batches(self) -> tuple[int, ...]:
        """Each batch size once, the smallest first."""
        return tuple(sorted({run.batch for run in self.runs}))

    def differing(self, batch: int) -> list[str]:
        """The jobs with other answers than the first native one with this batch size, in words."""
        mine = [run for run in self.runs if run.batch == batch]
        first = next(run for run in mine if run.way == "native")
        return [f"turn {r.turn}, {r.way}, batch {batch}" for r in mine if r.answers_sha256 != first.answers_sha256]
