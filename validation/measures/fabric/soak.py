"""Facts of kind soak-fabric: what went from one fabric port to another while the nodes burned in."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, real, short
from validation.kinds.record import Kind, addresses
from validation.measures.compute.beside import idle
from validation.measures.compute.segments import together
from validation.measures.rdma.counters import changes, gaps, growth, of_links, of_loss
from validation.model import Call, Job, Judgement, Measurement, Sample, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts, Positive
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion


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


# --- Traffic beside a burn-in: sessions to rates, held against the time that went by ---------------------------------


_WHAT = "soak-fabric"
AT_ONCE = 0.8
"""Share of the time of the traffic in which the node's burn-in ran. Project default: it takes a while to begin."""
MOST_GBPS = 1e5  # no port is so fast; against numbers that are none
SLACK = 1.2  # a session may measure a little longer than it was asked to. Project default


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`soak_gbps` of each session that came to its end; the others stand in the facts with their reason."""
    report: Any = json_object(doc["stdout"], f"{_WHAT}: the report")
    for key in ("seconds", "session_s"):
        expect(params, key, report[key], f"{_WHAT}: {key}")
    took, session_s = (number(report[key], f"{_WHAT}: {key}") for key in ("took_s", "session_s"))
    if took < number(report["seconds"], f"{_WHAT}: seconds") - session_s:
        raise ParseError(f"{_WHAT}: {took:g} s of the {report['seconds']:g} s that were asked for")
    sessions, last = [], -1.0
    for one in report["sessions"]:
        at = real(one["at_s"], f"{_WHAT}: begin of a session")
        if not last < at <= took:
            raise ParseError(f"{_WHAT}: a session at {at:g} s, after one at {last:g} s, of {took:g} s")
        last = at
        sessions.append(_session(one, at, session_s))
    if len(sessions) != count(doc["facts"]["sessions"], f"{_WHAT}: sessions"):
        raise ParseError(f"{_WHAT}: {number_of(len(sessions), 'session')}, {doc['facts']['sessions']} were counted")
    if sum(one["seconds"] for one in sessions) > SLACK * took:
        raise ParseError(f"{_WHAT}: sessions of more than the {took:g} s that went by")
    counters = {
        when: {str(name): int(count(value, f"{_WHAT}: {name}")) for name, value in report[when].items()}
        for when in ("before", "after")
    }
    tool = "iperf3" if params.get("transport", "tcp") == "tcp" else "perftest"
    raw = {"tool": tool, "seconds": report["seconds"], "took_s": took, "session_s": session_s, **counters}
    kept = [{key: value for key, value in one.items() if key != "seconds"} for one in sessions]
    found = as_facts(SoakFabricFacts, {**raw, "sessions": kept}, _WHAT)
    return [Sample(metric="soak_gbps", value=s.gbps, unit="Gbit/s") for s in found.sessions if not s.error], found


def _session(one: Mapping[str, Any], at: float, session_s: float) -> dict[str, Any]:
    if not isinstance(one["error"], str) or (one["error"] and (one["bytes"], one["seconds"]) != (0, 0)):
        raise ParseError(f"{_WHAT}: a session at {at:g} s that failed and did not")
    if one["error"]:
        return {"at_s": at, "bytes": 0, "gbps": 0.0, "seconds": 0.0, "error": short(str(one["error"]))}
    seconds = number(one["seconds"], f"{_WHAT}: seconds of a session")
    moved = int(count(one["bytes"], f"{_WHAT}: bytes of a session"))
    rate = moved * 8 / seconds / 1e9
    if not moved or rate > MOST_GBPS or seconds > SLACK * session_s + 5:
        raise ParseError(
            f"{_WHAT}: a session of {number_of(moved, 'byte')} in {seconds:g} s, {session_s:g} s were asked for"
        )
    return {"at_s": at, "bytes": moved, "gbps": float(f"{rate:.6g}"), "seconds": seconds, "error": ""}


# --- Traffic from one fabric port to another, beside the burn-in of the nodes ----------------------------------------


def _job(m: Measurement, topology: Topology) -> Job:
    """The serving end begins anew after each session, and is stopped at the end."""
    (source, destination), (here, there) = m.endpoints, addresses(m, topology)
    params = {key: value for key, value in m.params.items() if key not in ("segment", "segments")}
    client = {**params, "interface": source.port, "address": here, "peer": there}
    server = {**params, "interface": destination.port, "address": there, "peer": here}
    return Job(
        node=source.node,
        probe=Call(probe=m.kind, params=client),
        server_node=destination.node,
        server=Call(probe="serve", params={"tool": m.kind, "asked": server}),
        server_ends=False,
    )


KINDS = (
    Kind(
        name="soak-fabric",
        title="Traffic beside the burn-in",
        measures="Sends from every fabric port to the next node's port while the burn-in runs.",
        tool="ib_write_bw where both ports have RDMA, else iperf3",
        more="explanation/measuring/burn-in.md",
        job=_job,
        parse=parse,
        headline="soak_gbps",
        repeat_by="probe",
        once=True,
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Judging the traffic beside a burn-in: no session lost, no link error, and the GPUs under load meanwhile. Pure.


OWN_ERRORS = frozenset({"rx_errors", "tx_errors", "rx_crc_errors"})
"""Counters of the interface itself (Linux, Documentation/ABI/testing/sysfs-class-net-statistics)."""


@method("burn-fabric", "sessions and link counters of a port's traffic beside the burn-in", counts="ports")
def judge_soak_fabric(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each port that sent."""
    return together(((m, _port(case, criterion, m)) for m in case.serving(criterion)), case.attempts)


def _port(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    subject, ids = subject_of(m), [m.id]
    facts = facts_for(case, criterion, subject, m.id, SoakFabricFacts, None)
    if isinstance(facts, Judgement):
        return facts
    wrong = (
        [f"{len(facts.lost)} of {number_of(len(facts.sessions), 'session')} failed, {_first(facts)}"]
        if facts.lost
        else []
    )
    bad = growth(facts.before, facts.after, lambda name: of_links(name) or name in OWN_ERRORS)
    wrong += [str(change) for change in bad]
    flaps = [c for c in changes(facts.before, facts.after) if c.name == "carrier_changes" and c.by > 0]
    wrong += [f"the link went down and up: {change}" for change in flaps]
    rates = [one.gbps for one in facts.sessions if not one.error]
    shown = f"{facts.bytes / 1e9:.4g} GB in {facts.took_s / 60:.1f} minutes by {facts.tool}"
    if rates:
        part = max(1, len(rates) // 4)
        begin, end = statistics.median(rates[:part]), statistics.median(rates[-part:])
        shown += f", {begin:.4g} Gbit/s in the first quarter and {end:.4g} in the last (least {min(rates):.4g})"
    lost = [str(change) for change in growth(facts.before, facts.after, of_loss)]
    shown += f"; {', '.join(lost)}" if lost else ""
    if wrong:
        return judgement(criterion, subject, "fail", "not-working", f"{'; '.join(wrong)}; {shown}", ids, text=shown)
    if "carrier_changes" not in facts.before or "carrier_changes" not in facts.after:
        why = f"the interface of {m.endpoints[0]} does not count how often its link went down; {shown}"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, text=shown)
    if fell := gaps(facts.before, facts.after, {}):
        return judgement(criterion, subject, "not-measured", "missing-metric", f"{fell[0]}; {shown}", ids, text=shown)
    if alone := idle(case, m, "fabric", AT_ONCE):
        return judgement(criterion, subject, "not-measured", "missing-result", f"{alone}; {shown}", ids, text=shown)
    return judgement(criterion, subject, "pass", "within-bounds", shown, ids, text=shown)


def _first(facts: SoakFabricFacts) -> str:
    one = facts.lost[0]
    return f"the first after {one.at_s / 60:.1f} minutes: {one.error}"
