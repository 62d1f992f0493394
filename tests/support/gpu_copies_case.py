"""A node with GPUs whose copies are constructed, and the verdict on it."""

from __future__ import annotations

from typing import Any

from tests.support import gpu_copies_documents as made
from tests.support.site import criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.model import Measurement, Plan, Topology, VerdictDoc


def topology(gpus: int = 2) -> Topology:
    whole = hardware(("gpu1",))
    node = whole.nodes[0]
    return whole.model_copy(
        update={"nodes": (node.model_copy(update={"bom": node.bom.model_copy(update={"gpu_count": gpus})}),)}
    )


def planned(whole: Topology) -> Plan:
    """Suite transport without its other kinds."""
    plan = plan_of(whole, ("transport",))
    mine = tuple(m for m in plan.measurements if m.kind == "gpu-copies")
    rounds = tuple(one for one in plan.rounds if set(one) & {m.id for m in mine})
    return plan.model_copy(update={"measurements": mine, "rounds": rounds})


def judged(report: Any, gpus: int = 2, whole: Topology | None = None) -> VerdictDoc:
    """The verdict on one node whose probe said `report(params)`."""
    whole = whole or topology(gpus)
    plan = planned(whole)

    def one(m: Measurement) -> Any:
        samples, facts = parse("gpu-copies", made.document(report(m.params)), m.params)  # type: ignore[arg-type]
        return result(m, samples, facts=facts)

    return verdict_of(whole, plan, [one(m) for m in plan.measurements])


def reasons(verdict: VerdictDoc, id_: str) -> dict[str, str]:
    """Subject -> why, of those that did not pass."""
    return {j.subject: j.reason for j in criterion(verdict, id_).judgements if j.verdict != "pass"}


def joined(count: int, links: int) -> list[dict[str, Any]]:
    """NVLinks between all pairs of GPUs, so many between two of them."""
    addresses = [made.gpu(i)["address"] for i in range(count)]
    return [
        {
            "address": mine,
            "links": [
                {"number": n, "up": True, "peer": "gpu", "address": other}
                for n, other in enumerate(o for o in addresses if o != mine for _ in range(links))
            ],
        }
        for mine in addresses
    ]


def over_nvlink(params: Any, rate: float = 47.0, **changes: Any) -> dict[str, Any]:
    """Four V100 SXM2, two NVLinks between any two of them."""

    def of(cell: Any) -> float:
        return rate if cell["what"] == "peer" and cell["access"] else made.usual(cell)

    return made.report(params, 4, rate=of, nvlink=joined(4, 2), nvlink_unread="", **changes)
