"""What is asked of the servers' controllers (BMCs), from the machine that runs the validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object
from validation.kinds.record import Kind, names
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.model import Call, Job, Measurement, Sample, Topology
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Sample `bmcs_read`; of each planned node (`nodes` of `params`) what its BMC says."""
    said = json_object(doc["stdout"], "the reading of the BMCs")
    if doc["facts"]["nodes"] != len(said):
        raise ParseError(
            f"the reading of the BMCs has {number_of(len(said), 'node')}, {doc['facts']['nodes']} were read"
        )
    planned = tuple(params.get("nodes", ()))
    if sorted(said) != sorted(planned):
        raise ParseError(f"the reading of the BMCs is of {', '.join(sorted(said)) or 'none'}, planned were others")
    facts = BmcFacts(nodes=tuple(_node(name, said[name]) for name in planned))
    read = sum(not node.error for node in facts.nodes)
    return [Sample(metric="bmcs_read", value=read, unit="count")], facts


def _node(name: str, found: object) -> BmcNode:
    """What one BMC says. What cannot be used costs this one its reading, and no other."""
    try:
        if not isinstance(found, dict):
            raise ParseError("it is no JSON object")
        return as_facts(BmcNode, {**found, "node": name}, "what was read of it cannot be used")
    except ParseError as fault:
        return BmcNode(node=name, error=str(fault))


def _job(m: Measurement, topology: Topology) -> Job:
    deadline = float(str(m.params["deadline_s"]))
    params = {"nodes": list(names(m, "nodes")), "deadline_s": deadline}
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params=params))


KINDS = (
    Kind(
        name="bmc",
        title="Parts, firmware, BIOS, power and events by the servers' BMCs",
        measures="Reads what each server's BMC says of its parts, firmware, BIOS, power, sensors and events.",
        tool="Redfish over TLS, from the machine that validates",
        more="how-to/hardware.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
        on_controller=True,
    ),
)
