"""Operations: what monitoring has recorded of the pool."""

from __future__ import annotations

from validation.model import Measurement
from validation.suites.common import Part, Request

DAYS = 7.0
KIND = "utilisation"


def plan(request: Request) -> Part:
    """One look at the head's Prometheus."""
    part = Part()
    head = next((n for n in request.topology.nodes if "heads" in n.groups), None)
    if head is None:
        part.leave_out("operations: no node in group heads")
        return part
    if request.serving(KIND):
        part.rounds.append(
            [
                Measurement(
                    id=f"{KIND}.{head.name}",
                    suite="operations",
                    kind=KIND,
                    nodes=(head.name,),
                    params={"days": DAYS},
                    criteria=request.serving(KIND),
                    estimated_s=1.0,
                    timeout_s=60.0,
                )
            ]
        )
    return part
