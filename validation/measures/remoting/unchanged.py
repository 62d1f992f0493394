"""Facts of one program natively, remotely and on a part, and of its client (kind remoting-unchanged)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object
from validation.measures.remoting.facts import Remoting
from validation.measures.remoting.remoting_unchanged_probe import WAYS
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc

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


# --- One program natively, remotely and on a part, and its client before and after -----------------------------------


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`changes`: how many things were not the same. ParseError where a program did not run as its way says: natively
    by the driver's own library, remotely by another, on a part with less memory; or where its data were wrong."""
    raw = doc["facts"]
    said: Mapping[str, Any] = json_object(doc["stdout"], "unchanged")
    for key in ("server", "part"):
        expect(params, key, raw[key], f"unchanged: {key}")
    flag(raw["emulated"], "emulated")
    runs = []
    for run in said["runs"]:
        sent, back = run["sent_sha256"], run["back_sha256"]
        if not isinstance(sent, str) or sent != back:
            raise ParseError(f"unchanged: {run['way']}: other data came back from the GPU than were sent")
        runs.append({key: value for key, value in run.items() if key not in ("sent_sha256", "back_sha256")})
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "server", "part")}
    facts = as_facts(UnchangedFacts, {**known, **said, "runs": runs}, "unchanged")
    if tuple(run.way for run in facts.runs) != WAYS:
        raise ParseError(f"unchanged: {', '.join(run.way for run in facts.runs)} ran, not {', '.join(WAYS)}")
    if len({run["sent_sha256"] for run in said["runs"]}) != 1:
        raise ParseError("unchanged: the program did not copy the same data each time")
    native, remote, part = facts.runs
    if native.library == remote.library or remote.library != part.library:
        raise ParseError("unchanged: natively and remotely the program found the same library, or two remotely")
    if not part.told_bytes < remote.told_bytes:
        raise ParseError("unchanged: the part has no less memory than the whole")
    if (facts.before.packages == facts.after.packages) == bool(facts.packages):
        raise ParseError("unchanged: the packages' digests and differences contradict each other")
    return [Sample(metric="changes", value=len(facts.changes()), unit="count")], facts
