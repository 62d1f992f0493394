"""Judging how nodes are tuned: what role tuning set is so still, and of GPU servers what makes them slow or uneven.

Whose a setting is decides where it is judged: a container has its host's kernel, a virtual machine its host's
frequency, idle states and IOMMU.
"""

from __future__ import annotations

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.each_node import Said, on_each_node
from validation.judging.methods import method
from validation.measures.node import tuning_table
from validation.measures.node.hardware import missing
from validation.model import Bound, Judgement, Node
from validation.model.node_facts import NodeFacts
from validation.model.tuning import Tuning
from validation.rules.criterion import Criterion
from validation.rules.virtual import CONTAINERS


@method("tuning", "kernel, idle states, IOMMU and locked memory, against what role tuning set")
def judge_tuning(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node; what only GPU servers need is judged of them."""
    bound = Bound(
        metric="tuning",
        unit="",
        equal="as provisioned; on GPU servers as stated",
        derivation=tuning_table.SOURCES,
        source=criterion.source,
    )
    return on_each_node(case, criterion, NodeFacts, lambda node, facts: _judge(case, node, facts), bound)


def _judge(case: Case, node: Node, facts: NodeFacts) -> Said:
    found = facts.tuning
    if found is None:
        return Said("not-measured", "missing-metric", "the facts say nothing of how the node is tuned")
    gpus = bool(max(facts.gpu_count, node.bom.gpu_count or 0))
    inside, bare = facts.virt in CONTAINERS, facts.virt == "none"
    text = "; ".join(filter(None, (_stated(found, facts if bare else None), _not_its_own(facts.virt, inside))))
    wrong = [str(s) for s in found.sysctls or () if s.found != s.wanted]
    wrong += _locked_memory(found, rdma=case.fabric.transport != "tcp" and not inside)
    open_ = [found.unread] if found.unread else []
    if not inside:
        wrong += _own_kernel(found, facts, gpus)
    if bare:
        wrong += _frequency(found, gpus)
        more, unknown = _idle(found) if gpus else ([], [])
        wrong, open_ = wrong + more, open_ + unknown
        more, unknown = _iommu(found, facts) if gpus else ([], [])
        wrong, open_ = wrong + more, open_ + unknown
    if wrong:
        return Said("fail", "not-equal", "; ".join(wrong), text)
    if inside:
        open_.append(f"{node.name} is a container ({facts.virt}), whose kernel is its host's")
    if open_:
        return Said("not-measured", missing(case) if inside else "missing-metric", "; ".join(open_), text)
    return Said("pass", "within-bounds", text, text)


def _not_its_own(virt: str, inside: bool) -> str:
    if virt == "none" or inside:
        return ""
    return f"frequency, idle states and IOMMU do not apply: they are its hypervisor's ({virt})"


def _stated(found: Tuning, facts: NodeFacts | None) -> str:
    """In words; `facts` of bare metal."""
    of = f"{len(found.sysctls)} kernel parameters as provisioned by role tuning" if found.sysctls is not None else ""
    if found.sysctls is None:
        of = "role tuning set no kernel parameters here"
    elif changed := sum(s.found != s.wanted for s in found.sysctls):
        of = f"{changed} of {len(found.sysctls)} kernel parameters not as provisioned"
    said = [of]
    if facts is not None:
        governed = ", ".join(f"{g.name} ({g.policies})" for g in found.governors)
        said.append(f"governor {governed}" if governed else "no frequency scaling by the kernel: the BIOS decides")
        said += [f"energy preference {', '.join(found.energy)}"] if found.energy else []
        said.append(f"idle states {', '.join(map(str, found.idle))}" if found.idle else "no idle driver")
        said.append(f"IOMMU {', '.join(sorted({card.iommu or 'unknown' for card in facts.pci})) or 'of no card'}")
    said += [f"NUMA balancing {found.numa_balancing}"] if found.numa_balancing is not None else []
    said += [f"huge pages {found.huge_pages}"] if found.huge_pages else []
    said += [f"irqbalance {found.irqbalance}"] if found.irqbalance else []
    said += [f"tuned {found.tuned_profile or 'without a profile'}"] if found.tuned == "active" else []
    return ", ".join(said)


def _declared(found: Tuning, name: str) -> bool:
    """Whether the site itself provisioned this parameter: then that is what is judged."""
    return any(sysctl.name == name for sysctl in found.sysctls or ())


def _own_kernel(found: Tuning, facts: NodeFacts, gpus: bool) -> list[str]:
    """Of the kernel that is the node's own, a virtual machine's too."""
    wrong = []
    with_cpus = [node for node in facts.numa_nodes if node.cpus or node.socket is not None]  # others: a GPU's memory
    if gpus and found.numa_balancing and len(with_cpus) > 1 and not _declared(found, "kernel.numa_balancing"):
        wrong.append(f"automatic NUMA balancing is on ({found.numa_balancing}): pages move below the GPUs' copies")
    if found.zone_reclaim and not _declared(found, "vm.zone_reclaim_mode"):
        wrong.append(f"vm.zone_reclaim_mode is {found.zone_reclaim}, and nobody provisioned it")
    return wrong


def _frequency(found: Tuning, gpus: bool) -> list[str]:
    wanted = found.governor_unit or (tuning_table.GOVERNOR if gpus else "")
    if not wanted or not found.governors:
        return []
    wrong, all_of_them = [], sum(g.policies for g in found.governors)
    odd = [f"{g.name} on {g.policies} of {all_of_them} frequency policies" for g in found.governors if g.name != wanted]
    if odd:
        wrong.append(f"the CPU governor is {', '.join(odd)} and not {wanted}")
    if found.tuned == "active" and found.tuned_governors and found.tuned_governors[0] != wanted:
        wrong.append(
            f"tuned (profile {found.tuned_profile}) sets the governor {found.tuned_governors[0]}, which is to be "
            f"{wanted}: the last one to set it wins"
        )
    return wrong


def _idle(found: Tuning) -> tuple[list[str], list[str]]:
    """What is wrong, and what is not known."""
    deep = [state for state in found.idle if state.latency_us >= tuning_table.IDLE_LATENCY_US]
    held = found.latency_limit_us
    entered = [state for state in deep if held is None or state.latency_us <= held]
    if not entered:
        return [], []
    words = f"processors may enter {', '.join(map(str, entered))}; bound {tuning_table.IDLE_LATENCY_US} us"
    if held is None:
        return [], [f"{words}, and only root can read whether PM QoS keeps them from it"]
    return [words], []


def _iommu(found: Tuning, facts: NodeFacts) -> tuple[list[str], list[str]]:
    """What is wrong, and what is not known."""
    if found.machine not in tuning_table.IOMMU_MACHINES:
        return [], []
    cards = [card for card in facts.pci if card.address]
    between = [f"{card.name} ({card.iommu})" for card in cards if card.iommu not in (*tuning_table.PASSED_THROUGH, "")]
    mute = [card.name for card in cards if not card.iommu]
    wrong = [f"the IOMMU stands between memory and {', '.join(between)}: iommu=pt is not in effect"] if between else []
    return wrong, [f"the kernel does not say how the IOMMU treats {', '.join(mute)}"] if mute else []


def _locked_memory(found: Tuning, rdma: bool) -> list[str]:
    """Services that jobs inherit their limit from, where it was raised or the fabric needs it."""
    if found.memlock_wanted.isdigit():
        least = int(found.memlock_wanted)
    elif found.memlock_wanted == "infinity" or rdma:
        least = 2**64
    else:
        return []
    return [
        f"{service.service} may lock {number_of(service.memlock_bytes, 'byte')} of memory, its jobs no more, and "
        f"{found.memlock_wanted or 'no limit'} is wanted: it has not been restarted since, or its unit sets another"
        for service in found.services
        if service.memlock_bytes is not None and service.memlock_bytes < least
    ]
