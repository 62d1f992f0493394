"""Facts of a node. A component that is not installed is "", never absent: absent means that nobody looked."""

from __future__ import annotations

from collections.abc import Mapping

from validation.kinds.parsing import Parsed, as_facts
from validation.kinds.record import Kind, on_node
from validation.model import Job, Measurement, Scalar, Topology
from validation.model.node_facts import NodeFacts
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """No samples; the facts, with every key there and of its type."""
    return [], as_facts(NodeFacts, doc["facts"], "facts")


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m, interfaces=[port.interface for port in topology.node(m.nodes[0]).ports])


KINDS = (
    Kind(
        name="facts",
        title="Hardware, software and settings of a node",
        measures="Reads hardware, software and settings of a node.",
        tool="sysfs, procfs, package managers and the tools of each component",
        more="explanation/measuring/nodes.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
