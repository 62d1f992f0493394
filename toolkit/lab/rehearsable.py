"""Which nodes of a lab can rehearse a fabric, and which fabrics no lab can."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from toolkit.errors import LabError
from toolkit.lab.spec import FABRIC_MTU, LabSpec
from validation.base.counting import number_of

if TYPE_CHECKING:
    from validation.rules.fabric import Fabric

CORE_GBPS = 8.0
"""TCP that one processor carries between containers, both ends on it: two carried 18 Gbit/s in 30 pairs at the same
time with nothing left over (benchmarks/README.md, "Sixty nodes")."""
#: Sort of node -> what it is in words.
WORDS = {"container": "containers", "vm": "virtual machines with Soft-RoCE"}


def needs_machines(fabric: Fabric) -> bool:
    """Whether a lab rehearses the fabric with virtual machines; False: with containers.

    LabError that says why no lab can, and names the fabrics that one can.
    """
    why = _refusal(fabric)
    if why:
        from validation.rules.fabric import fabric_names, load_fabric

        fabrics = [f for f in map(load_fabric, fabric_names()) if not _refusal(f)]
        plain = ", ".join(f.name for f in fabrics if not f.needs_rdma)
        verbs = ", ".join(f.name for f in fabrics if f.needs_rdma)
        raise LabError(
            f"no lab can rehearse fabric {fabric.name}: {why}; these can be rehearsed: {plain} ({WORDS['container']}), "
            f"{verbs} ({WORDS['vm']})"
        )
    return fabric.needs_rdma


def describe(spec: LabSpec) -> str:
    """`head, client1: containers; gpu1, gpu2: virtual machines with Soft-RoCE; links of 1 Gbit/s`."""
    sorts = {kind: [node.name for node in spec.nodes if node.kind == kind] for kind in WORDS}
    nodes = [f"{', '.join(names)}: {WORDS[kind]}" for kind, names in sorts.items() if names]
    return "; ".join([*nodes, f"links of {spec.rate_gbps:g} Gbit/s"])


def too_fast(spec: LabSpec, cores: int) -> str:
    """That `cores` processors cannot fill the links of all pairs of nodes at the same time, and a rate that they can
    fill; "" where they can."""
    pairs = len(spec.nodes) // 2
    carried_gbps = CORE_GBPS * cores / pairs
    if spec.vms or spec.rate_gbps <= carried_gbps:
        return ""
    digit = 10.0 ** math.floor(math.log10(carried_gbps))
    return (
        f"{number_of(pairs, 'pair')} of nodes are measured at the same time, {pairs * spec.rate_gbps:g} "
        f"Gbit/s, and {cores} "
        f"processors carry about {CORE_GBPS * cores:g}: links will look slow; "
        f"--rate {math.floor(carried_gbps / digit) * digit:g} fits"
    )


def _refusal(fabric: Fabric) -> str:
    """Why no lab can rehearse a fabric; "" where one can."""
    if fabric.link_layer != "Ethernet":
        return f"its ports are {fabric.link_layer}, and those of a lab are Ethernet, as Soft-RoCE is"
    if fabric.transport not in ("tcp", "roce"):
        return f"its transport is {fabric.transport}, and the RDMA devices of a lab are Soft-RoCE"
    if fabric.mtu != FABRIC_MTU:
        return f"its MTU is {fabric.mtu}, and that of a lab's links is {FABRIC_MTU}"
    return ""
