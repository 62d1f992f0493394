"""Hardware: the BMCs of all nodes that declare one, at the same time, before the other suites and after them."""

from __future__ import annotations

from math import ceil

from validation.model import Measurement
from validation.plan.request import Part, Request
from validation.probes.redfish import BMCS_AT_ONCE

DEADLINE_S = 60.0
"""Of one BMC. iDRAC 9 with 8 GPUs and 32 memory modules is read in 10 to 30 s by its documents' number; project
default."""


def short_names(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def bmcs(request: Request, part: Part | None, suffix: str = "") -> list[list[Measurement]]:
    """One measurement of all BMCs; `part` is given the nodes that declare none."""
    after = bool(suffix)
    kind = tuple(c.id for c in request.criteria if c.kind == "bmc" and (not after or c.method == "bmc-events"))
    mine = tuple(node.name for node in request.topology.nodes if node.bmc is not None)
    without = [node.name for node in request.topology.nodes if node.bmc is None]
    if part is not None and kind and without:
        who = short_names(without) if mine else "any node"
        part.leave_out(f"no BMC is declared for {who} (host variable bmc)", *(() if mine else kind))
    if not kind or not mine:
        return []
    return [[reading(mine, kind, suffix)]]


def reading(nodes: tuple[str, ...], criteria: tuple[str, ...] = (), suffix: str = "") -> Measurement:
    """One reading of the BMCs of these nodes, all at the same time."""
    return Measurement(
        id=f"bmc{suffix}.site",
        suite="preflight",
        kind="bmc",
        nodes=nodes,
        params={"nodes": nodes, "deadline_s": DEADLINE_S},
        criteria=criteria,
        estimated_s=10.0,
        timeout_s=60.0 + DEADLINE_S * 2 * ceil(len(nodes) / BMCS_AT_ONCE),
    )
