"""Traffic beside a burn-in: sessions to rates, held against the time that went by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, real, short
from validation.measures.fabric.soak_facts import SoakFabricFacts
from validation.model import Sample
from validation.probes import ProbeDoc

_WHAT = "soak-fabric"
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
