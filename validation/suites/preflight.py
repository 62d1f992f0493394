"""Preflight: are these the machines, the software and the MTU that were promised?"""

from __future__ import annotations

from validation.model import Endpoint, Measurement
from validation.suites.common import Part, Request, pair_id, pair_rounds


def plan(request: Request) -> Part:
    """Facts of every node in one round, then the path MTU of every ordered pair of fabric ports."""
    part = Part()
    facts = request.serving("facts")
    if facts and request.topology.nodes:
        part.rounds.append(
            [
                Measurement(
                    id=f"facts.{node.name}",
                    suite="preflight",
                    kind="facts",
                    nodes=(node.name,),
                    criteria=facts,
                    estimated_s=0.6,
                    timeout_s=60.0,
                )
                for node in request.topology.nodes
            ]
        )
    mtu = request.serving("path-mtu")

    def path_mtu(source: Endpoint, destination: Endpoint) -> Measurement:
        return Measurement(
            id=pair_id("path-mtu", source, destination),
            suite="preflight",
            kind="path-mtu",
            nodes=(source.node, destination.node),
            endpoints=(source, destination),
            params={"mtu": request.fabric.mtu},
            criteria=mtu,
            estimated_s=0.4,
            timeout_s=60.0,
        )

    if mtu:
        part.rounds += pair_rounds(request.topology, "path-mtu", path_mtu, part)
    return part
