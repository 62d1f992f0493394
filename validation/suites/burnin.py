"""Burn-in: every node's GPUs, or processors where it has none, under load at the same time."""

from __future__ import annotations

from validation.kinds.burn_in import OWN_S, asked
from validation.model import Measurement
from validation.suites.common import Part, Request

MINUTES = 15
"""Unless another number is asked for: heat has settled by then (Azure's thermal test takes as long)."""
MOST_MINUTES = 168 * 60
"""A week."""


def plan(request: Request) -> Part:
    """One round of all nodes; virtual nodes share a host, so there one node after another."""
    part, topology = Part(), request.topology
    criteria = request.serving("burn-in")
    seconds = 60.0 * request.options.get("minutes", MINUTES)
    found = []
    for node in topology.nodes if criteria else ():
        params = asked(node, topology, seconds)
        if request.options.get("anyway"):
            params["anyway"] = True
        if topology.here is not None and topology.here.gpu_trouble:
            part.leave_out(f"burn-in of GPUs: {topology.here.gpu_trouble}", *criteria)
            params["gpus"] = 0
        found.append(
            Measurement(
                id=f"burn-in.{node.name}",
                suite="burn-in",
                kind="burn-in",
                nodes=(node.name,),
                params=params,
                criteria=criteria,
                estimated_s=round(seconds + OWN_S / 4, 1),
                timeout_s=round(seconds + 2 * OWN_S + 60, 1),
            )
        )
    part.rounds = [[m] for m in found] if topology.virtual else [found] if found else []
    return part
