"""Compute: what each node does by itself. Its records in validation/kinds/ say with which parameters."""

from __future__ import annotations

from validation.kinds import KINDS
from validation.model import Measurement
from validation.suites.common import Part, Request


def plan(request: Request) -> Part:
    """One round for each kind over all nodes; virtual nodes share a host, so there one node after another."""
    part = Part()
    for kind in KINDS.values():
        criteria = request.serving(kind.name)
        if kind.on_each is None or not criteria:
            continue
        each = [
            Measurement(
                id=f"{kind.name}.{node.name}",
                suite="compute",
                kind=kind.name,
                nodes=(node.name,),
                params=kind.on_each.params(node),
                criteria=criteria,
                estimated_s=kind.on_each.estimated_s,
                timeout_s=10 * kind.on_each.estimated_s + 60,
            )
            for node in request.topology.nodes
        ]
        part.rounds += [[m] for m in each] if request.topology.virtual else [each] if each else []
    part.excused = not part.rounds
    return part
