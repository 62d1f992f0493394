"""How a burn-in of days is cut into segments, and how the load changes within each: soak.yml, read."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import Field, field_validator

from validation.model.base import Model
from validation.model.load import load_yaml

FILE = Path(str(resources.files("validation.rules"))) / "soak.yml"


class Step(Model):
    """A share of the full load for a time."""

    share: float = Field(ge=0, le=1)
    seconds: float = Field(gt=0, le=86400)


class Soak(Model):
    """`segment_minutes`: of a segment; a burn-in that is no longer has one, under full load throughout."""

    segment_minutes: int = Field(ge=1, le=24 * 60)
    steps: tuple[Step, ...] = Field(min_length=1)

    @field_validator("steps")
    @classmethod
    def _begins_with_load(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if not steps[0].share:
            raise ValueError("the first step is idle; begin with load, so that each segment has a rate")
        return steps

    @property
    def words(self) -> tuple[str, ...]:
        """The steps as a probe is asked for them."""
        return tuple(f"{step.share:g}:{step.seconds:g}" for step in self.steps)

    def segments(self, seconds: float, segment_s: int | None = None) -> tuple[float, ...]:
        """Seconds of each segment, the last with what is left. `segment_s`: of a segment, where somebody chose it."""
        each = float(segment_s or 60 * self.segment_minutes)
        whole = int(seconds // each)
        left = seconds - whole * each
        return (*[each] * whole, *([left] if left else []))


@cache
def soak() -> Soak:
    """That of this release."""
    return load_yaml(FILE, Soak)
