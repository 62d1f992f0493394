"""Operations: what monitoring and accounting have recorded of the pool."""

from __future__ import annotations

from validation.plan.request import Part, Request, Suite, on_one_node

LOOKS = {"utilisation": (7.0, 60.0), "pool-use": (30.0, 240.0)}
"""Kind -> how many days are looked back, and the time limit in seconds."""


def plan(request: Request) -> Part:
    """One look each at the head's Prometheus and at Slurm's accounting."""
    part = Part()
    head = next((n for n in request.topology.nodes if "heads" in n.groups), None)
    if head is None:
        part.leave_out("operations: no node in group heads")
        return part
    for kind, (days, timeout_s) in LOOKS.items():
        if not request.serving(kind):
            continue
        part.rounds.append(
            [
                on_one_node(
                    head,
                    "operations",
                    kind,
                    request.serving(kind),
                    estimated_s=1.0,
                    timeout_s=timeout_s,
                    params={"days": days},
                )
            ]
        )
    return part


SUITE = Suite("operations", 80, plan)
