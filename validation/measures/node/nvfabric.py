"""Judging the fabric of NVSwitches: Fabric Manager, each GPU's registration with it, the rate of the NVLinks."""

from __future__ import annotations

import re

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.model.nvlink import NvGpu
from validation.rules.criterion import Criterion
from validation.rules.gpus import NvLinks, nvlinks
from validation.rules.virtual import CONTAINERS


@method("nvfabric", "Fabric Manager, GPUs' registration and NVLink rates, as the node and NVML say")
def judge_nvfabric(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with NVSwitches. Where no node has any, the criterion does not apply to this site."""

    def judge(node: Node, facts: NodeFacts) -> Said:
        said = _judge(case, node, facts)
        return Said(*said, text=_words(facts), bound=_bound(criterion, nvlinks(facts.gpu_model)))

    return on_each_node(case, criterion, NodeFacts, judge)


def _bound(criterion: Criterion, row: NvLinks | None) -> Bound:
    rate = f"each NVLink that is up at {row.rate_mb_s} MB/s or more" if row else "all NVLinks at one rate"
    return Bound(
        metric="nvlink_fabric",
        unit="",
        equal=f"Fabric Manager active and of the driver's version; each GPU completed and successful; {rate}",
        derivation=(f"rate: {row.source}",) if row else (),
        source=criterion.source,
    )


def version_of(said: str) -> str:
    """`580.126.20` of `nvidia-fabricmanager 580.126.20-1`, of `1:580.126.20-1ubuntu1` and of itself; else ""."""
    last = said.split()[-1] if said.split() else ""
    found = re.search(r"\d+(?:\.\d+)+", last)
    return found[0] if found else ""


def _driver(facts: NodeFacts) -> str:
    """Version of the driver: what is loaded goes before what is installed."""
    return version_of(facts.driver_loaded) or version_of(facts.driver)


def _words(facts: NodeFacts) -> str | None:
    """What was found, in words."""
    said = [f"Fabric Manager {facts.fabric_manager_state} ({version_of(facts.fabric_manager) or 'no version'})"]
    said = said if facts.fabric_manager_state else []
    for gpu in facts.nvlink or ():
        rates = sorted({link.rate_mb_s for link in gpu.links if link.rate_mb_s})
        of = f"fabric {gpu.fabric.state}, status {gpu.fabric.status}" if gpu.fabric else "no fabric state"
        of += f", clique {gpu.fabric.clique}, cluster {gpu.fabric.cluster}" if gpu.fabric else ""
        said.append(f"GPU {gpu.address}: {of}" + (f", NVLinks of {'/'.join(map(str, rates))} MB/s" if rates else ""))
    return "; ".join(said) or None


def _switched(facts: NodeFacts, row: NvLinks | None) -> bool:
    peers = (link.peer for gpu in facts.nvlink or () for link in gpu.links)
    described = any(gpu.emulated and gpu.fabric is not None and gpu.fabric.known for gpu in facts.nvlink or ())
    return described or bool(facts.nvswitches) or "switch" in peers or (row is not None and row.switched)


def _judge(case: Case, node: Node, facts: NodeFacts) -> tuple[VerdictName, ReasonCode, str]:
    counted, row = max(facts.gpu_count, node.bom.gpu_count or 0), nvlinks(facts.gpu_model)
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    gpus = facts.nvlink
    if not counted and not gpus and not facts.nvswitches:
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    if facts.virt in CONTAINERS and facts.nvswitches and not gpus:
        return "not-measured", missing, f"{node.name} is a container ({facts.virt}), whose PCI devices are its host's"
    if facts.nvswitches is None and gpus is None:
        return "not-measured", missing, f"NVSwitches cannot be read: {facts.nvlink_unread or 'nobody looked'}"
    if not _switched(facts, row):
        return "not-applicable", "not-applicable", "no NVSwitch on this node's PCI bus or behind its NVLinks"
    if any(gpu.emulated for gpu in gpus or ()) and not case.virtual:
        return "not-measured", "missing-metric", "the GPUs are emulated"
    wrong, unknown = _manager(facts, row)
    for gpu in gpus or ():
        bad, open_ = _gpu(gpu, row)
        wrong, unknown = [*wrong, *bad], [*unknown, *open_]
    if wrong:
        return "fail", "not-equal", "; ".join(wrong)
    if gpus is None:
        unknown.append(f"the GPUs' fabric cannot be read: {facts.nvlink_unread or 'NVML was not asked'}")
    elif len(gpus) < counted:
        unknown.append(f"NVML shows {len(gpus)} of {number_of(counted, 'GPU')}")
    if row is None:
        rates = {link.rate_mb_s for gpu in gpus or () for link in gpu.links if link.rate_mb_s}
        if len(rates) > 1:
            return "fail", "not-equal", f"NVLinks of different rates: {', '.join(map(str, sorted(rates)))} MB/s"
    if unknown:
        return "not-measured", missing, "; ".join(unknown)
    return "pass", "within-bounds", _words(facts) or ""


def _manager(facts: NodeFacts, row: NvLinks | None) -> tuple[list[str], list[str]]:
    """What is wrong with Fabric Manager, and what of it nobody knows. It runs where the switches are managed."""
    if row is not None and row.beyond:
        return [], []  # on the switch trays
    if facts.virt != "none" and not facts.nvswitches:
        return [], []  # on the host, which kept the switches
    if facts.fabric_manager_state is None:
        return [], ["nobody asked for Fabric Manager"]
    state = facts.fabric_manager_state or "unknown"
    wrong = [] if state == "active" else [f"Fabric Manager is {state}"]
    manager, driver = version_of(facts.fabric_manager), _driver(facts)
    if not manager or not driver:
        return wrong, [f"no version is known of {'the driver' if manager else 'Fabric Manager'}"]
    if manager != driver:
        wrong.append(f"Fabric Manager is {manager}, the driver {driver}")
    return wrong, []


def _gpu(gpu: NvGpu, row: NvLinks | None) -> tuple[list[str], list[str]]:
    """What is wrong with a GPU's registration and its links' rates, and what of it nobody knows."""
    name, wrong, unknown = f"GPU {gpu.address}", [], []
    if gpu.fabric is not None and gpu.fabric.known:
        wrong += [f"{name}: {words}" for words in gpu.fabric.faults]
        unknown += [f"{name}: fabric health: {words}" for words in gpu.fabric.unjudged]
        if row is not None and row.beyond and not gpu.fabric.addressed:
            wrong.append(
                f"{name}: clique {gpu.fabric.clique}, cluster {gpu.fabric.cluster}: no NVLink leaves the server"
            )
    elif row is not None and row.registered:
        unknown.append(f"{name}: the driver reports no fabric state")
    if gpu.emulated:
        return wrong, unknown  # what is described says nothing of rates
    up = [link for link in gpu.links if link.up]
    mute = [link.number for link in up if link.rate_mb_s is None]
    if mute:
        unknown.append(f"{name}: no rate is reported for NVLinks {', '.join(map(str, mute))}")
    slow = [link for link in up if row is not None and link.rate_mb_s is not None and link.rate_mb_s < row.rate_mb_s]
    if row is not None and slow:
        each = ", ".join(f"{link.number} at {link.rate_mb_s}" for link in slow)
        wrong.append(f"{name}: NVLinks below {row.rate_mb_s} MB/s: {each}")
    return wrong, unknown
