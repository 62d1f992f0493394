"""Judging Access Control Services: off at every port above GPUs and fabric ports, for they send transfers around."""

from __future__ import annotations

from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.measures.node.hardware import unseen
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.model.pci import PciPort
from validation.rules.criterion import Criterion
from validation.rules.gpus import nvlinks
from validation.rules.virtual import CONTAINERS


@method("acs", "Access Control Services of the ports above cards, as their configuration space says")
def judge_acs(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with GPUs. Where no node has any, or all are virtual machines, it does not apply to this site."""
    bound = Bound(
        metric="acs_control",
        unit="",
        equal="no service switched on at any port above a GPU or a fabric port",
        derivation=("ACS control register (PCI Express base specification, ACS Extended Capability)",),
        source=criterion.source,
    )
    return on_each_node(case, criterion, NodeFacts, lambda node, facts: Said(*_judge(case, node, facts)), bound)


def _judge(case: Case, node: Node, facts: NodeFacts) -> tuple[VerdictName, ReasonCode, str, str | None]:
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if not max(facts.gpu_count, node.bom.gpu_count or 0):
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared", None
    if facts.virt in CONTAINERS:
        why = f"{node.name} is a container ({facts.virt}), whose PCI devices are its host's"
        return "not-measured", missing, why, None
    if facts.virt != "none":
        why = f"{node.name} is a virtual machine ({facts.virt}): its hypervisor needs these services as it set them"
        return "not-applicable", "not-applicable", why, None
    ports: dict[str, PciPort] = {}
    below: dict[str, list[str]] = {}
    for card in facts.pci:
        for port in card.above:
            ports[port.address] = port
            below.setdefault(port.address, []).append(card.name)
    text = "; ".join([*(f"{port.address}: {_state(port)}" for port in ports.values()), _iommu(facts)])
    on = [
        f"{port.address}: {port.acs.words or hex(port.acs.control)} on (above {', '.join(below[port.address])})"
        for port in ports.values()
        if port.acs is not None and port.acs.control
    ]
    row = nvlinks(facts.gpu_model)
    if on and row is not None and row.beyond:
        why = f"the right setting of these services for {facts.gpu_model} is unknown: {'; '.join(on)}"
        return "not-measured", "no-bound", why, text
    if on:
        return "fail", "not-equal", "; ".join(on), text
    open_ = unseen(node, facts)
    if mute := [port.address for port in ports.values() if port.acs is None]:
        open_.append(f"only root is shown the configuration space of {', '.join(mute)}")
    if bare := [card.name for card in facts.pci if card.what == "gpu" and not card.above]:
        open_.append(f"no port is shown above {', '.join(bare)}")
    if open_:
        return "not-measured", missing, "; ".join(open_), text
    return "pass", "within-bounds", text, text


def _state(port: PciPort) -> str:
    if port.acs is None:
        return "unknown"
    return port.acs.words or ("off" if port.acs.capable else "has none")


def _iommu(facts: NodeFacts) -> str:
    """`IOMMU identity`, of all cards."""
    return f"IOMMU {', '.join(sorted({card.iommu or 'unknown' for card in facts.pci}))}"
