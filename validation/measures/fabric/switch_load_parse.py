"""Incast and all to all: what each end printed, joined session by session and held against the ports' own counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, short
from validation.measures.fabric.switch_load_facts import SwitchLoadFacts
from validation.model import Sample
from validation.probes import ProbeDoc

MOST_GBPS = 1e5  # no port is so fast; against numbers that are none
SHORTEST = {"iperf3": 0.9, "perftest": 0.4}
"""Least share of the seconds asked for that a session may have measured: perftest leaves out either end."""
LONGEST = 1.5
"""How much longer than asked, and a second, a session may take until all has arrived. Project default."""
AT_ONCE = 0.5
"""Least share of the seconds asked for in which all senders of a port sent: what comes together loads a switch.
Project default, for nodes of a lab take turns at being late."""
CLOCK_S = 0.5  # by what an end may be seen later than it was
WORD_BYTES = 4  # of port_rcv_data: InfiniBand specification, volume 1, 16.1.3.5


def _counted(raw: Any, what: str) -> dict[str, int]:
    return {str(name): int(count(value, f"{what}: {name}")) for name, value in raw.items()}


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Of an incast `incast_gbps` of its receiver, of all to all `all_to_all_port_gbps` of each port in the order of
    their names; beside it Jain's index of all sessions, and over TCP the segments that were sent again.
    """
    kind = doc["kind"]
    printed = json_object(doc["stdout"], f"{kind}: the report")
    ends: dict[str, dict[str, Any]] = {}
    for part in ("sending", "serving"):
        texts: Any = printed[part]
        ends[part] = {node: json_object(text, f"{kind}: {node}, {part}") for node, text in texts.items()}
    everybody = [(node, one) for part in ends.values() for node, one in part.items()]
    for node, one in everybody:
        for key in ("seconds", "streams", "transport"):
            expect(params, key, one[key], f"{kind}: {key} of {node}")
    transport, asked = everybody[0][1]["transport"], number(everybody[0][1]["seconds"], f"{kind}: seconds")
    tool = "iperf3" if transport == "tcp" else "perftest"
    names = {str(one["address"]): node for node, one in everybody}
    if len(names) != len({node for node, _ in everybody}):
        raise ParseError(f"{kind}: {number_of(len(names), 'address')} of {len({node for node, _ in everybody})} nodes")
    sessions = _sessions(kind, ends, names, asked, tool)
    ports = [_port(kind, node, ends, names, sessions, asked) for node in sorted({node for node, _ in everybody})]
    raw = {"tool": tool, "seconds": asked, "sessions": sessions, "ports": ports}
    facts = as_facts(SwitchLoadFacts, raw, kind)
    receivers = facts.receivers
    if len(facts.sessions) < 2 or (kind == "incast") != (len(receivers) == 1):
        raise ParseError(f"{kind}: {number_of(len(facts.sessions), 'session')} to {number_of(len(receivers), 'port')}")
    metric = "incast" if kind == "incast" else "all_to_all"
    rate = "incast_gbps" if kind == "incast" else "all_to_all_port_gbps"
    samples = [Sample(metric=rate, value=facts.received(port), unit="Gbit/s") for port in receivers]
    samples.append(Sample(metric=f"{metric}_fairness", value=facts.fairness, unit="ratio"))
    if facts.retransmits is not None:
        samples.append(Sample(metric="retransmits", value=facts.retransmits, unit="count"))
    return samples, facts


def _sessions(
    kind: str, ends: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], asked: float, tool: str
) -> list[dict[str, Any]]:
    """Every session that a sender tells of, in their order; each has its other end, and no other end is left."""
    waiting = {
        (names.get(str(one["peer"])), node, count(one["port"], f"{kind}: port"))
        for node, report in ends["serving"].items()
        for one in report["sessions"]
    }
    planned, found = len(waiting), []
    for node, report in ends["sending"].items():
        for one in report["sessions"]:
            what = f"{kind}: {node} to {short(str(one['peer']))}"
            receiver = names.get(str(one["peer"]))
            key = (node, receiver, count(one["port"], f"{what}: port"))
            if key not in waiting:
                raise ParseError(f"{what}: nobody served it, or it stands twice")
            waiting.remove(key)
            seconds, moved = number(one["seconds"], f"{what}: seconds"), int(count(one["bytes"], f"{what}: bytes"))
            if not SHORTEST[tool] * asked <= seconds <= LONGEST * asked + 1:
                raise ParseError(f"{what}: {seconds:.4g} s of the {asked:g} s that were asked for")
            if not moved or moved * 8 / seconds / 1e9 > MOST_GBPS:
                raise ParseError(f"{what}: {number_of(moved, 'byte')} in {seconds:.4g} s")
            resent = one["retransmits"]
            resent = None if resent is None else int(count(resent, f"{what}: retransmits"))
            found.append(
                {"sender": node, "receiver": receiver, "seconds": seconds, "bytes": moved, "retransmits": resent}
            )
    if waiting or planned != sum(len(report["sessions"]) for report in ends["serving"].values()):
        raise ParseError(f"{kind}: {number_of(len(found), 'session')} were sent, {planned} were served")
    return found


def _port(
    kind: str,
    node: str,
    ends: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
    sessions: list[dict[str, Any]],
    asked: float,
) -> dict[str, Any]:
    """A node's port: what it counts, and when what it received came."""
    serves = ends["serving"].get(node)
    report = serves or ends["sending"][node]  # the serving end's readings are the first and the last
    before, after = (_counted(report[when], f"{kind}: {node}, {when}") for when in ("before", "after"))
    found: dict[str, Any] = {"node": node, "before": before, "after": after}
    if serves is None:
        return found
    took = {one["sender"]: one["seconds"] for one in sessions if one["receiver"] == node}
    moved = sum(one["bytes"] for one in sessions if one["receiver"] == node)
    spans = []
    for one in serves["sessions"]:
        end = number(one["ended_s"], f"{kind}: {node}: end of a session")
        seconds = took[names[str(one["peer"])]]
        if end < seconds - CLOCK_S:
            raise ParseError(f"{kind}: {node}: a session of {seconds:.4g} s ended after {end:.4g} s")
        spans.append((end - seconds, end))
    begins, stops = zip(*spans, strict=True)
    window, together = max(stops) - min(begins), min(stops) - max(begins)
    if together < AT_ONCE * min(took.values()):
        words = f"all of its senders sent in {max(together, 0):.3g} s of {window:.3g} s together"
        raise ParseError(f"{kind}: {node}: {words}, so that nothing was loaded by all of them")
    for name, unit in (("rx_bytes", 1), ("port_rcv_data", WORD_BYTES)):
        counted = (after.get(name, 0) - before.get(name, 0)) * unit
        mine = (name == "rx_bytes") == (report["transport"] == "tcp")
        if mine and name in before and name in after and 0 <= counted < moved:
            raise ParseError(
                f"{kind}: {node}: its port counted {number_of(counted, 'byte')}, {moved} are said to have arrived there"
            )
    return {**found, "window_s": window, "at_once_s": together}
