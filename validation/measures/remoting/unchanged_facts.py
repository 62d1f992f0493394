"""Facts of one program natively, remotely and on a part, and of its client (kind remoting-unchanged)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Way = Literal["native", "remote", "part"]


class Packages(Model):
    """How many are installed, and the digest of their names and versions."""

    count: Count = Field(ge=1)
    sha256: Sha256


class ClientState(Model):
    """Of a client; driver "" where no GPU driver is loaded."""

    packages: Packages
    kernel: Name
    modules: tuple[Name, ...]
    driver: str


class WayRun(Model):
    """What ran, by its own command line as its kernel has it; the driver library that it found; the memory of its GPU
    or part, as its lease says."""

    way: Way
    program_sha256: Sha256
    command_sha256: Sha256
    words: Count
    library: Name
    told_bytes: Positive


class UnchangedFacts(Remoting):
    """A program three ways, and its client before and after."""

    type: Literal["unchanged"] = "unchanged"
    server: str
    part: Name
    before: ClientState
    after: ClientState
    packages: tuple[Name, ...]
    runs: tuple[WayRun, ...] = Field(min_length=1)

    @field_validator("runs")
    @classmethod
    def _ways_once(cls, runs: tuple[WayRun, ...]) -> tuple[WayRun, ...]:
        return once(runs, "way")

    def changes(self) -> list[str]:
        """What was not the same, in words."""
        first, found = self.runs[0], []
        for run in self.runs[1:]:
            if run.program_sha256 != first.program_sha256:
                found.append(f"{run.way}: another program than {first.way}")
            elif (run.command_sha256, run.words) != (first.command_sha256, first.words):
                found.append(f"{run.way}: another command than {first.way}")
        if self.before.packages != self.after.packages:
            found.append(f"the client's packages changed: {', '.join(self.packages)}")
        if self.before.kernel != self.after.kernel:
            found.append(f"the client's kernel changed from {self.before.kernel} to {self.after.kernel}")
        modules = sorted(set(self.before.modules) ^ set(self.after.modules))
        if modules:
            found.append(f"the client's kernel modules changed: {', '.join(modules)}")
        if self.before.driver != self.after.driver:
            found.append(f"the client's driver changed from {self.before.driver!r} to {self.after.driver!r}")
        return found
