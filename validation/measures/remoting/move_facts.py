"""Facts of a GPU that one class of users gave to another (kind remoting-move)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model
from validation.model.facts import Count, Name

Seconds = float


class Moved(Model):
    """What happened, in seconds since the one that took had asked.

    `told_s`: the program that gave heard the signal; `saved_s`: its checkpoint was on the disk; both None where it
    ended without (`failed`, its words). `gone_s`: its command had ended, and the lease was given back;
    `first_step_s`: the other's first step was done, `resumed_s`: the first step after the checkpoint was.
    `steps_lost`: done before and again, None where nobody knows how many there were. `differs_at`: the first step
    (from 1) with another loss than undisturbed. `held_twice_s`: how long both held the GPU, by the programs' own
    calls, 0 where they did not; `overlap_s`: the same of the leases, by Slurm's record.
    """

    gave: Name
    took: Name
    grace_s: Seconds = Field(ge=0, allow_inf_nan=False)
    safe_s: Seconds = Field(ge=0, allow_inf_nan=False)
    failed: str
    told_s: Seconds | None = Field(ge=0, allow_inf_nan=False)
    saved_s: Seconds | None = Field(ge=0, allow_inf_nan=False)
    gone_s: Seconds = Field(ge=0, allow_inf_nan=False)
    first_step_s: Seconds = Field(ge=0, allow_inf_nan=False)
    resumed_s: Seconds = Field(ge=0, allow_inf_nan=False)
    elsewhere: bool
    checkpoint_bytes: Count
    steps: Count
    steps_kept: Count
    steps_lost: Count | None
    differs_at: int | None = Field(ge=1)
    same_weights: bool
    held_twice_s: Seconds = Field(ge=0, allow_inf_nan=False)
    overlap_s: Seconds = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _whole(self) -> Moved:
        if (self.told_s is None) != bool(self.failed) or (self.saved_s is None) != bool(self.failed):
            raise ValueError("a program was notified and kept its work, or failed")
        return self


class MoveFacts(Remoting):
    """A GPU that changed hands; `unmade`: why none did, "" where one did."""

    type: Literal["move"] = "move"
    server: str
    unmade: str
    moved: Moved | None

    @model_validator(mode="after")
    def _either(self) -> MoveFacts:
        if (self.moved is None) != bool(self.unmade):
            raise ValueError("a GPU changed hands, or there is a reason why it did not")
        return self

    def wrong(self) -> list[str]:
        """What must not be, in words."""
        found, it = [], self.moved
        if it is None:
            return []
        if it.failed:
            found.append(f"the program of {it.gave} was not notified, or could not keep its work: {it.failed}")
        if it.differs_at is not None:
            found.append(f"after it went on its losses are others from step {it.differs_at} on")
        elif not it.same_weights:
            found.append("after it went on it had the same losses and other weights")
        if it.held_twice_s:
            found.append(f"both programs used the GPU for {it.held_twice_s:.3g} s")
        if it.overlap_s:
            found.append(f"by Slurm's record both leases had the GPU for {it.overlap_s:g} s")
        return found
