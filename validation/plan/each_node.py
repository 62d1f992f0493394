"""Compute: what each node does by itself. Its records in validation/kinds/ say with which parameters."""

from __future__ import annotations

from validation.kinds import KINDS
from validation.kinds.record import OnEach
from validation.model import Measurement, Node
from validation.plan.request import Part, Request, Suite, on_one_node


def plan(request: Request) -> Part:
    """One round for each kind over all nodes; virtual nodes share a host, so there one node after another."""
    part = Part()
    for kind in KINDS.values():
        criteria = request.serving(kind.name)
        if kind.on_each is None or not criteria:
            continue
        why = {node.name: kind.on_each.why_not(node, request.topology) for node in request.topology.nodes}
        nodes = [node for node in request.topology.nodes if not why[node.name]]
        for words in dict.fromkeys(why.values()) if not nodes else ():
            part.leave_out(f"{kind.title}: {words}", *criteria)
        each = [_one(kind.name, kind.on_each, node, criteria, request) for node in nodes]
        part.rounds += [[m] for m in each] if request.topology.virtual else [each] if each else []
    part.excused = not part.rounds
    return part


def _one(name: str, on_each: OnEach, node: Node, criteria: tuple[str, ...], request: Request) -> Measurement:
    params, estimated_s = on_each.asked(node, bool(request.options.get("quick")))
    if name == "gpu-compute" and request.options.get("anyway"):
        params = {**params, "anyway": True}
    return on_one_node(
        node, "compute", name, criteria, estimated_s=estimated_s, timeout_s=10 * on_each.estimated_s + 60, params=params
    )


SUITE = Suite("compute", 40, plan)
