"""Judging whether GPU memory can reach the RDMA ports directly: by dma-buf, or by a peer-memory module."""

from __future__ import annotations

import re

from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.measures.node.gpulib import gpus
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.rules.criterion import Criterion
from validation.rules.virtual import CONTAINERS

OLDEST = (5, 12)
"""The first kernel whose RDMA takes dma-bufs (Linux 5.12, ib_umem_dmabuf_get)."""


@method("gpudirect", "kernel, its options and modules that GPUDirect RDMA needs")
def judge_gpudirect(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with GPUs and RDMA ports. Where there is none, the criterion does not apply to this site."""
    bound = Bound(
        metric="gpudirect",
        unit="",
        equal="open kernel modules and kernel 5.12 or later with CONFIG_PCI_P2PDMA; or a peer-memory module",
        source=criterion.source,
    )
    return on_each_node(case, criterion, NodeFacts, lambda node, facts: Said(*_judge(case, node, facts)), bound)


def _judge(case: Case, node: Node, facts: NodeFacts) -> tuple[VerdictName, ReasonCode, str]:
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if not gpus(node, facts):
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    if not any(port.rdma for port in node.ports):
        return "not-applicable", "not-applicable", "no RDMA port in this node"
    if facts.virt in CONTAINERS:
        return "not-measured", missing, f"{node.name} is a container ({facts.virt}), whose kernel is its host's"
    found, module = facts.gpudirect, facts.driver_module
    if found is None:
        return "not-measured", missing, "nobody looked at the kernel's modules and options"
    if module is None:
        return "not-measured", missing, "no kernel module of the NVIDIA driver is loaded"
    numbers = tuple(int(number) for number in re.findall(r"\d+", facts.kernel)[:2])
    lacks = [] if module.open else [f"the proprietary kernel modules ({module.version}) have no dma-buf"]
    lacks += [] if numbers >= OLDEST else [f"kernel {facts.kernel} is older than 5.12"]
    lacks += ["the kernel was built without CONFIG_PCI_P2PDMA"] if found.p2pdma is False else []
    ways = [f"{found.peermem} is loaded"] if found.peermem else []
    if not lacks and found.p2pdma:
        notify = {None: "not known", True: "on", False: "off"}[found.move_notify]
        ways.insert(0, f"dma-buf: open kernel modules {module.version}, kernel {facts.kernel}, move notify {notify}")
    if ways:
        return "pass", "within-bounds", "; ".join(ways)
    if lacks:
        return "fail", "not-equal", f"{'; '.join(lacks)}; and no peer-memory module is loaded"
    why = f"kernel {facts.kernel} does not tell its options, and no peer-memory module is loaded"
    return "not-measured", missing, why
