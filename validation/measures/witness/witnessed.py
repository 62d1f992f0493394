"""From what was watched during a witnessed test to what was seen, what was lost and when it was back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, json_object
from validation.kinds.record import Kind
from validation.model import Call, Job, Measurement, Param, Sample, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name
from validation.model.witness import Sense
from validation.probes import ProbeDoc

GONE = {"node": ("silent",), "link": ("down",), "slurm": ("down",), "bmc": ()}
"""By a sense, which values mean that something is away. What a BMC says is seen, and nothing is lost by it."""
SLACK_S = 15.0
"""So long nobody may look without a gap: what was away for less may have been missed. Project default."""


class Line(Model):
    """What changed: by which sense, of which node and part of it, to which value. `at`: seconds since 1970, UTC."""

    at: float = Field(ge=0, allow_inf_nan=False)
    sense: Sense
    node: Name
    what: str
    value: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is about."""
        return self.sense, self.node, self.what

    @property
    def name(self) -> str:
        """`gpu1`, `gpu1 fab0`, `gpu1 PSU 1`."""
        return f"{self.node} {self.what}".rstrip()

    @property
    def away(self) -> bool:
        """Whether it means that this is gone."""
        return self.value in GONE[self.sense]

    def __str__(self) -> str:
        """`gpu1 fab0: down (link)`."""
        return f"{self.name}: {self.value} ({self.sense})"


class Times(Model):
    """When the person was asked to do it, and said that it is done; the same of undoing it; and the end."""

    off_asked: float = Field(ge=0, allow_inf_nan=False)
    off_done: float = Field(ge=0, allow_inf_nan=False)
    back_asked: float = Field(ge=0, allow_inf_nan=False)
    back_done: float = Field(ge=0, allow_inf_nan=False)
    ended: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Times:
        every = [self.off_asked, self.off_done, self.back_asked, self.back_done, self.ended]
        if every != sorted(every):
            raise ValueError("are not in their order: a clock was set meanwhile")
        return self


class Watched(Model):
    """What the command wrote down of one test. `count`: of its lines, for one that is missing may hide a loss."""

    test: Name
    node: str
    witness: Name
    remark: str
    times: Times
    watched: tuple[tuple[float, float], ...]
    count: Count
    lines: tuple[Line, ...]

    def whole(self, start: float, end: float) -> bool:
        """Whether somebody watched from one moment to the other."""
        return any(first <= start + SLACK_S and end <= last + SLACK_S for first, last in self.watched)


class WitnessFacts(Facts):
    """What came of a test. `seen_s` and `back_s`: seconds after the person's word, 0 where it was before that; None
    where it was not. `seen_gap`, `back_gap`: nobody watched all the time, so that nothing is known. `blind`: no sense
    that was to see it could be used. `gone`: what was away, as the test may have it; `lost`: what beyond that;
    `stayed`: nodes and links that were there all the time; `open`: what was not as before at the end.
    """

    type: Literal["witness"] = "witness"
    test: Name
    title: Name
    node: str
    witness: Name
    remark: str
    seen_s: float | None
    seen_first: str
    seen_gap: bool
    blind: bool
    gone: tuple[str, ...]
    lost: tuple[str, ...]
    stayed: Count
    back_s: float | None
    back_gap: bool
    open: tuple[str, ...]


def parse(doc: ProbeDoc, params: Mapping[str, Param]) -> Parsed:
    """Seconds until it was seen and until it was back, and how many things were lost."""
    said = as_facts(Watched, json_object(doc["stdout"], "witness: the record"), "witness: the record")
    for key, found in (("test", said.test), ("node", said.node)):
        expect(params, key, found, "witness")  # type: ignore[arg-type]
    if [line.at for line in said.lines] != sorted(line.at for line in said.lines):
        raise ParseError("witness: the lines are not in the order of their times: a clock was set meanwhile")
    before = state_at(said.lines, said.times.off_asked)
    if not before:
        raise ParseError("witness: nothing was watched before the test, so that nothing is known of it")
    if strange := next((line for line in said.lines if _unheard(line, before)), None):
        raise ParseError(f"witness: {strange.name}: the record does not have what it was before the test")
    if len(said.lines) != said.count:
        raise ParseError(f"witness: {len(said.lines)} lines are in the record, {said.count} were written")
    facts = found_of(said, params)
    samples = [Sample(metric="witness_lost", value=float(len(facts.lost)), unit="count")]
    for metric, value in (("witness_seen_s", facts.seen_s), ("witness_back_s", facts.back_s)):
        samples += [] if value is None else [Sample(metric=metric, value=value, unit="s")]
    return samples, facts


def _unheard(line: Line, before: Mapping[tuple[str, str, str], Line]) -> bool:
    """Whether a thing is told of during a test that the same sense would have told of before; a BMC may list more."""
    nodes, told = {key[1] for key in before}, {key[:2] for key in before if key[0] != "bmc"}
    return line.key not in before and (line.sense == "node" or line.node not in nodes or line.key[:2] in told)


def found_of(said: Watched, params: Mapping[str, Param]) -> WitnessFacts:
    """What the lines of a test come to."""
    times, node, loses = said.times, said.node, str(params["loses"])
    before = state_at(said.lines, times.off_asked)
    during = [line for line in said.lines if times.off_asked < line.at and line.key in before]
    senses = tuple(params["seen_by"]) if isinstance(params["seen_by"], tuple) else ()
    mine = [line for line in during if line.sense in senses and node in ("", line.node) and other(line, before)]
    first = next((line for line in mine if line.at <= times.back_asked), None)
    seen = None if first is None else round(max(0.0, first.at - times.off_done), 3)
    until = first.at if first is not None else times.off_done + seconds(params, "seen_within_s")
    away = {line.key: line for line in during if line.away and other(line, before)}
    taken = {key for key, line in away.items() if allowed(line, node, loses)}
    at_back = moment_back(said.lines, before, times)
    end = state_at(said.lines, times.ended)
    return WitnessFacts(
        test=said.test,
        title=str(params["title"]),
        node=node,
        witness=said.witness,
        remark=said.remark,
        seen_s=seen,
        seen_first="" if first is None else str(first),
        seen_gap=not said.whole(times.off_asked, min(until, times.back_asked)),
        blind=not any(line.sense in senses and node in ("", line.node) for line in before.values()),
        gone=tuple(sorted(f"{away[key].name} ({away[key].sense})" for key in taken)),
        lost=tuple(sorted(f"{line.name} ({line.sense})" for key, line in away.items() if key not in taken)),
        stayed=sum(key not in away and not line.away and key[0] in ("node", "link") for key, line in before.items()),
        back_s=None if at_back is None else round(max(0.0, at_back - times.back_done), 3),
        back_gap=not said.whole(times.back_asked, times.ended if at_back is None else at_back),
        open=tuple(sorted(f"{line.name}: {end[key].value}, was {line.value}" for key, line in before.items()
                          if key in end and end[key].value != line.value)),
    )  # fmt: skip


def state_at(lines: Sequence[Line], moment: float) -> dict[tuple[str, str, str], Line]:
    """The last word on each thing up to a moment."""
    return {line.key: line for line in lines if line.at <= moment}


def other(line: Line, before: Mapping[tuple[str, str, str], Line]) -> bool:
    """Whether it is not as it was before the test."""
    return line.value != before[line.key].value


def allowed(line: Line, node: str, loses: str) -> bool:
    """Whether a test may take this away."""
    if loses == "node":
        return line.node == node
    return loses == "links" and line.sense == "link" and node in ("", line.node)


def moment_back(lines: Sequence[Line], before: Mapping[tuple[str, str, str], Line], times: Times) -> float | None:
    """From when on all is as before, for good; None where that never came."""
    now, since = dict(before), times.back_asked
    odd = False
    for line in lines:
        if not times.off_asked < line.at <= times.ended or line.key not in before:
            continue
        now[line.key] = line
        was, odd = odd, any(now[key].value != first.value for key, first in before.items())
        if was and not odd:
            since = line.at
    return None if odd else since


def seconds(params: Mapping[str, Param], key: str) -> float:
    """A number of the test."""
    value = params[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParseError(f"witness: {key}: {value!r} is no number of seconds")
    return float(value)


def _job(m: Measurement, topology: Topology) -> Job:
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params={"test": str(m.params["test"])}))


KINDS = (
    Kind(
        name="witness",
        title="Witnessed test",
        measures="Watches nodes, links, BMCs and Slurm while a person takes something away and brings it back.",
        tool="`toolkit handover witness`, on the machine that validates",
        more="how-to/witness.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
        on_controller=True,
    ),
)
