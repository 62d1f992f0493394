"""Judging the ways that NCCL took, by its own log: a rate alone does not tell a fast socket from a slow fabric."""

from __future__ import annotations

from collections.abc import Sequence

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.kinds.record import names
from validation.measures.collectives.bounds import nvlink
from validation.measures.collectives.facts import CollectivesFacts, NcclPath
from validation.measures.rdma.ports import RdmaPortsFacts
from validation.measures.rdma.ports_judge import BEFORE, port_of
from validation.model import Endpoint, Judgement, Measurement, Node
from validation.model.node_facts import NodeFacts
from validation.rules.criterion import Criterion

NEAR = ("PIX", "PXB")
"""Behind the same PCIe switches: as near as NCCL wants a GPU and a port for GDRDMA by default (NCCL_NET_GDR_LEVEL)."""


@method("collectives-path", "what NCCL says that it sends with, inside a node and between nodes", counts="jobs")
def judge_collectives_path(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job, inside a node and across nodes."""
    return [_path(case, criterion, job) for job in case.serving(criterion)]


def _path(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, ids = subject_of(job), [job.id]
    facts = facts_for(case, criterion, subject, job.id, CollectivesFacts, None)
    if isinstance(facts, Judgement):
        return facts
    if facts.backend != "nccl":
        why = criterion.rehearsal.why if case.virtual else "not every rank had a GPU of its own: without NCCL"
        return judgement(criterion, subject, "not-measured", "virtual" if case.virtual else "missing-metric", why, ids)
    across = len(set(facts.hosts)) > 1
    if not any(c.across for c in facts.path.channels) if across else not facts.path.channels:
        why = f"the log of {job.id} does not tell what NCCL took {'between' if across else 'inside'} the nodes"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    text = "; ".join(map(str, facts.path.channels)) + ("; NVSwitches add up (NVLS)" if facts.path.nvls else "")
    hosts = [case.nodes[name] for name in names(job, "hosts")]
    marked = ""
    wrong = [*_sockets(facts.path, hosts), *_inside(facts)]
    if across and job.params.get("transport") != "tcp":
        wrong += [*_between(facts), *_devices(case, facts.path, hosts), *_gdr(case, facts.path, hosts)]
        if job.params.get("transport") == "roce":
            marked = _traffic_class(case, facts.path, hosts)
    if wrong:
        return judgement(criterion, subject, "fail", "not-working", "; ".join(wrong), ids, text=text)
    if marked:
        return judgement(criterion, subject, "pass", "remarked", f"{text}; a remark: {marked}", ids, text=text)
    return judgement(criterion, subject, "pass", "within-bounds", text, ids, text=text)


def _sockets(path: NcclPath, hosts: Sequence[Node]) -> list[str]:
    """Interfaces that are none of the fabric's: docker0 has the same address on every node."""
    mine = {port.interface for host in hosts for port in host.ports}
    astray = [name for name in path.sockets if name not in mine]
    return [f"TCP over {', '.join(astray)}, fabric ports are {', '.join(sorted(mine))}"] if astray else []


def _traffic_class(case: Case, path: NcclPath, hosts: Sequence[Node]) -> str:
    """In words, that NCCL's packets have another traffic class than the one kept from losses; "" where they have it.

    NCCL sets that of its own connections, 0 unless NCCL_IB_TC says another, which a port may override for all of them.
    Nothing is said of a log without any setting, or where no policy or no port is known.
    """
    told = {name: value for name, _, value in (one.partition("=") for one in path.settings)}
    if not told:
        return ""
    said = []
    for host in hosts:
        result = case.usable(f"{BEFORE}.{host.name}")
        facts = result.facts_of(RdmaPortsFacts) if result is not None else None
        wanted = facts.policy.tos if facts is not None and facts.policy is not None else None
        for port in facts.ports if facts is not None and wanted is not None else ():
            forced = port.qos.traffic_class if port.qos is not None else None
            mine = str(forced) if forced else told.get("NCCL_IB_TC", "0")
            if mine != str(wanted):
                how = "of the port" if forced else "NCCL_IB_TC" if "NCCL_IB_TC" in told else "NCCL_IB_TC is not set"
                said.append(
                    f"{host.name}/{port.interface} sends with traffic class {mine} ({how}), {wanted} is lossless"
                )
    return "; ".join(said)


def _inside(facts: CollectivesFacts) -> list[str]:
    """What leaves a node for its own GPUs, or goes through host memory where there are NVLinks."""
    inside = [c for c in facts.path.channels if not c.across]
    wrong = [f"{c}: the network between GPUs of one node" for c in inside if c.transport.startswith("NET/")]
    if nvlink(facts.gpu_model) is not None:
        wrong += [f"{c}: host memory, though {facts.gpu_model} has NVLinks" for c in inside if c.transport == "SHM"]
    return wrong


def _between(facts: CollectivesFacts) -> list[str]:
    """What is not RDMA between nodes. P2P there is NVLink across nodes."""
    channels = [c for c in facts.path.channels if c.across]
    wrong = [f"{c}: not the fabric's RDMA" for c in channels if not c.transport.startswith(("NET/IB", "P2P"))]
    return wrong + [f"{c}: not the fabric's RDMA" for c in facts.carriers if c.library == "NCCL" and not c.rdma]


def _devices(case: Case, path: NcclPath, hosts: Sequence[Node]) -> list[str]:
    """Devices that are no fabric port's, and ports that no device was taken of; nothing where the ports are unknown."""
    wanted = set()
    for host in hosts:
        for port in host.ports:
            seen = port_of(case, Endpoint(node=host.name, port=port.interface)) if port.rdma else None
            if port.rdma and (seen is None or not seen.device):
                return []
            wanted |= {f"{seen.device}:{seen.port}"} if seen else set()
    if not path.devices:
        return []
    astray, idle = sorted(set(path.devices) - wanted), sorted(wanted - set(path.devices))
    wrong = [f"{', '.join(astray)} taken, the fabric ports are {', '.join(sorted(wanted))}"] if astray else []
    return wrong + ([f"{', '.join(idle)} not taken"] if idle else [])


def _gdr(case: Case, path: NcclPath, hosts: Sequence[Node]) -> list[str]:
    """GDRDMA missing where it must be there: all GPUs near a port want it of all connections, some of at least one."""
    near: list[bool] = []
    for host in hosts:
        found = _cards(case, host)
        near += found
        if not found:
            return []
    channels = [c for c in path.channels if c.across and c.transport.startswith("NET/IB")]
    bare = [c for c in channels if not c.gdr]
    if not channels or not any(near) or not bare:
        return []
    if all(near):
        return [f"{c}: GPUs and ports are behind the same PCIe switches, and it is without GDRDMA" for c in bare]
    if not any(c.gdr for c in channels):
        return ["no connection has GDRDMA, though some GPUs and ports are behind the same PCIe switches"]
    return []


def _cards(case: Case, host: Node) -> list[bool]:
    """Of each GPU of a node whether a fabric port is near; empty where the node's facts do not tell."""
    results = (case.usable(m.id) for m in case.plan.measurements if m.kind == "facts" and m.nodes[0] == host.name)
    facts = next((f for r in results if r is not None and (f := r.facts_of(NodeFacts)) is not None), None)
    if facts is None:
        return []
    mine = {port.interface for port in host.ports if port.rdma}
    ports = [card for card in facts.pci if card.what == "nic" and card.interface in mine]
    found = []
    for gpu in (card for card in facts.pci if card.what == "gpu"):
        distances = [gpu.distance(port) for port in ports]
        if None in distances or not distances:
            return []
        found.append(any(distance in NEAR for distance in distances))
    return found
