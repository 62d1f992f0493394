"""Facts of kind soak-fabric: what went from one fabric port to another while the nodes burned in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts, Positive


class SoakSession(Model):
    """One session. `at_s` from the begin; `gbps` 0 where it failed, with the reason in `error`."""

    at_s: float = Field(ge=0, allow_inf_nan=False)
    bytes: Count
    gbps: float = Field(ge=0, allow_inf_nan=False)
    error: str = ""


class SoakFabricFacts(Facts):
    """`seconds` were asked for, `took_s` went by. `before`, `after`: counters of the sending port."""

    type: Literal["soak-fabric"] = "soak-fabric"
    tool: Literal["iperf3", "perftest"]
    seconds: Positive
    took_s: Positive
    session_s: Positive
    sessions: tuple[SoakSession, ...] = Field(min_length=1)
    before: dict[str, Count]
    after: dict[str, Count]

    @property
    def lost(self) -> list[SoakSession]:
        """Sessions that failed."""
        return [one for one in self.sessions if one.error]

    @property
    def bytes(self) -> int:
        """All that was carried."""
        return sum(one.bytes for one in self.sessions)
