"""Switches: each node's switch port is set as the node is, for lossless RoCE.

Compared by `toolkit switch check`, on the machine that validates: what follows here is a function of what it printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Literal

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind
from validation.model import Bound, Call, Job, Judgement, Measurement, ReasonCode, Sample, Scalar, Topology, VerdictName
from validation.model.base import Model
from validation.model.facts import Facts, Name
from validation.plan.request import Part, Request
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

AT_ONCE = 16
"""How many switches are asked at the same time."""
SWITCH_S = 150.0
"""What one switch may take: to connect, to log in and to print its configuration (toolkit/switches/collect.py)."""
MOST_NAMED = 3
"""How many differences and reasons are in the words of a judgement; the facts have all. Project default."""


class ReadSwitch(Model):
    """A switch whose configuration was read."""

    switch: Name
    system: Name
    source: str


class ComparedPort(Model):
    """A port of a switch, and which port of which node is in it; both "" without a map of cables."""

    switch: Name
    switch_port: Name
    node: str
    port: str


class OpenPort(ComparedPort):
    """One that was not compared, and why."""

    why: Name


class SwitchDifference(Model):
    """What a node and its switch do not agree on, with the line of either."""

    what: Name
    switch: Name
    switch_port: Name
    host: str
    node: str
    words: Name
    host_line: str
    switch_line: str

    def __str__(self) -> str:
        """`leaf1 Eth1/7 (gpu2 eth3): MTU 1500 is less than the host's 9000 bytes`."""
        about = f" ({self.host})" if self.host else ""
        return f"{self.switch} {self.switch_port}{about}: {self.words}"

    @property
    def both(self) -> str:
        """The same with both lines."""
        return f"{self}; host: {self.host_line}; switch: {self.switch_line}"


class SwitchesFacts(Facts):
    """What was compared. `unchecked`: what could not be, in words; `not_compared`: the nodes' ports among it."""

    type: Literal["switches"] = "switches"
    switches: tuple[ReadSwitch, ...]
    compared: tuple[ComparedPort, ...]
    not_compared: tuple[OpenPort, ...]
    differences: tuple[SwitchDifference, ...]
    unchecked: tuple[str, ...]


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many ports were compared, and the facts."""
    said = json_object(doc["stdout"], "switches: the report")
    ports = said["ports"]
    given = {key: value for key, value in said.items() if key not in ("schema", "ports")}
    facts = as_facts(SwitchesFacts, {"type": "switches", **given}, "switches")
    if ports != len(facts.compared):
        raise ParseError(f"switches: {ports} ports were compared, and {len(facts.compared)} are listed")
    there = {(one.switch, one.switch_port) for one in facts.compared}
    beside = next((one for one in facts.differences if (one.switch, one.switch_port) not in there), None)
    if beside is not None:
        raise ParseError(f"switches: {beside.switch} {beside.switch_port} differs, and was not compared")
    expected = 1 if facts.differences else 3 if facts.unchecked else 0
    if doc["facts"]["exit"] != expected:
        raise ParseError(f"switches: the command ended with {doc['facts']['exit']}, its report is one of {expected}")
    return [Sample(metric="switch_ports_compared", value=ports, unit="count")], facts


@method("switches", "each node's switch port beside the node's own RoCE settings")
def judge_switches(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with Ethernet fabric ports."""
    bound = Bound(
        metric=criterion.id,
        unit="",
        equal="the host's MTU, DSCP, priority, PFC, ECN, notifications and LACP",
        derivation=("variables of roles roce and fabric in the inventory, beside the switch's running configuration",),
        source=criterion.source,
    )
    judged = []
    for measurement in case.serving(criterion):
        for name in measurement.nodes:
            facts = facts_for(case, criterion, name, measurement.id, SwitchesFacts, bound)
            if isinstance(facts, Judgement):
                judged.append(facts)
                continue
            verdict, code, why, text = _of_node(facts, name, bool(case.topology.cables))
            if case.topology.lab_link is not None:
                why += " (an emulated switch)"
            judged.append(judgement(criterion, name, verdict, code, why, [measurement.id], text=text, bound=bound))
    return judged


def _of_node(facts: SwitchesFacts, node: str, mapped: bool) -> tuple[VerdictName, ReasonCode, str, str | None]:
    if not mapped:
        seen = [str(one) for one in facts.differences] or list(facts.unchecked)
        why = "no map of cables in the inventory, which says whose switch port is whose"
        return "not-measured", "missing-metric", "; ".join([why, *_some(seen)]), None
    wrong = [one for one in facts.differences if one.node == node]
    ends = [f"{one.port} in {one.switch} {one.switch_port}" for one in facts.compared if one.node == node]
    if wrong:
        return "fail", "not-equal", "; ".join(_some(list(map(str, wrong)))), "; ".join(one.both for one in wrong)
    open_ = [f"{one.switch} {one.switch_port} ({node} {one.port}): {one.why}" for one in facts.not_compared
             if one.node == node]  # fmt: skip
    if open_ or not ends:
        nothing = [f"no port of {node} is in the map of cables"] if not open_ else []
        return "not-measured", "missing-metric", "; ".join(_some([*open_, *nothing])), "; ".join(ends) or None
    return "pass", "within-bounds", f"as the switch: {'; '.join(_some(ends))}", "; ".join(ends)


def _some(words: list[str]) -> list[str]:
    more = len(words) - MOST_NAMED
    return [*words[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]


def planned(request: Request, part: Part) -> list[list[Measurement]]:
    """One reading of all switches. `part` is given why there is none."""
    criteria = request.serving("switches")
    if not criteria or request.fabric.link_layer != "Ethernet":
        return []
    topology = request.topology
    if not topology.switches:
        part.leave_out("no switch is declared (variable switches)", *criteria)
        return []
    nodes = tuple(node.name for node in topology.nodes if node.ports)
    if not nodes:
        return []
    return [
        [
            Measurement(
                id="switches.site",
                suite="preflight",
                kind="switches",
                nodes=nodes,
                criteria=criteria,
                estimated_s=5.0,
                timeout_s=60.0 + SWITCH_S * ceil(len(topology.switches) / AT_ONCE),
            )
        ]
    ]


def _job(m: Measurement, topology: Topology) -> Job:
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params={}))


KINDS = (
    Kind(
        name="switches",
        title="Switch ports beside the hosts' RoCE settings",
        measures="Compares each switch port's settings for lossless RoCE with those of the host behind it.",
        tool="`toolkit switch check`, by ssh from the machine that validates",
        more="how-to/switches.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
        on_controller=True,
    ),
)
