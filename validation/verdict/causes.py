"""Cause and effect of findings joined: what preflight found wrong at a part, and what is slow there, are one finding.

Where nothing of preflight failed, what sets the suspect's node apart from the others of its group is told instead: a
PCI Express link, MTU or speed of its port, NUMA node, firmware, a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from validation.judging.case import Case
from validation.model import Finding, Subject
from validation.model.judgement import CLUSTER
from validation.model.node_facts import NodeFacts

TCP = ("tr.tcpbw", "tr.tcploss", "tr.netlat")
RDMA = ("tr.rdmafn", "tr.rdmabw", "tr.rdmalat", "tr.rdmagpu")
GPU_LINK = ("tr.h2d", "tr.p2p", "tr.matrix", "tr.uniform", "tr.h2dall", "tr.h2dnuma", "tr.agree")
JOBS = ("tr.nccl", "tr.collect", "tr.ncclrail", "tr.nccliso", "tn.", "rm.")
GPU = (*GPU_LINK, "tr.hbm", "tr.local", "tr.clocks", "tr.p2plat", "tr.ncclnvls", "co.", "bi.", *JOBS)

EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "pf.pcie": (*TCP, *RDMA, *GPU_LINK, *JOBS),
    "pf.numa": (*TCP, *RDMA, *GPU_LINK, *JOBS),
    "pf.nic": (*TCP, *RDMA, *JOBS),
    "pf.mtu": (*TCP, *RDMA, *JOBS),
    "pf.tuning": (*TCP, *RDMA, *JOBS),
    "pf.ports": ("pf.mtu", *TCP, *RDMA, *JOBS),
    "pf.state": (*TCP, *RDMA, *JOBS),
    "pf.rdmaport": (*TCP, *RDMA, *JOBS),
    "pf.lossless": (*RDMA, *JOBS),
    "pf.memlock": (*RDMA, *JOBS),
    "pf.acs": ("tr.p2p", "tr.matrix", "tr.rdmagpu", *JOBS),
    "pf.dmabuf": ("tr.rdmagpu", *JOBS),
    "pf.ncclenv": ("tr.ncclpath", "tr.ncclnvls", *JOBS),
    "pf.nvlink": ("tr.p2p", "tr.p2plat", "tr.ncclnvls", *GPU_LINK, *JOBS),
    "pf.fabric": ("tr.p2p", "tr.p2plat", "tr.ncclnvls", *GPU_LINK, *JOBS),
    "pf.gpuhealth": GPU,
    "pf.xid": GPU,
    "pf.gpulib": GPU,
}
"""What a failed criterion of preflight can be the cause of: ids of criteria, or what they begin with."""

JOINED = 0.5
"""A cause that was found independently takes this share of the doubt away. Project default."""


@dataclass
class _Joined:
    causes: list[Finding] = field(default_factory=list)
    effects: list[Finding] = field(default_factory=list)


def explains(cause: str, effect: str) -> bool:
    """Whether a failure of the first criterion can be the cause of one of the second."""
    return any(effect == what or (what.endswith(".") and effect.startswith(what)) for what in EXPLAINS.get(cause, ()))


def with_causes(case: Case, found: Iterable[Finding]) -> list[Finding]:
    """Findings of one criterion each; effects take in the causes at their nodes, and several effects of one node's
    causes become one finding. Nothing is lost: the criteria, texts and evidence of all stand in it.
    """
    found = list(found)
    known = {node.name for node in case.topology.nodes}
    causes: dict[str, list[Finding]] = {}
    for finding in found:
        if finding.criteria[0] in EXPLAINS and finding.about.kind in ("node", "port"):
            causes.setdefault(finding.about.ends[0].node, []).append(finding)
    at: dict[tuple[str, ...], _Joined] = {}
    taken: list[Finding] = []
    for effect in found:
        nodes = _nodes(case, effect, causes, known)
        mine = [c for n in nodes for c in causes[n] if c is not effect and explains(c.criteria[0], effect.criteria[0])]
        if not mine:
            continue
        joined = at.setdefault(tuple(sorted({c.about.ends[0].node for c in mine})), _Joined())
        joined.effects.append(effect)
        joined.causes += [c for c in mine if not any(c is other for other in joined.causes)]
        taken += [effect, *mine]
    rest = [f for f in found if not any(f is other for other in taken)]
    return [*(_one(nodes, joined) for nodes, joined in at.items()), *rest]


def _nodes(case: Case, effect: Finding, causes: Mapping[str, Sequence[Finding]], known: set[str]) -> list[str]:
    """Nodes with a cause that the effect can come from: those it names; of a cluster's, where each measurement has one.

    One of all nodes at once is explained by a single one's cause: it waits for the slowest.
    """
    if effect.about.ends:
        return [end.node for end in effect.about.ends if end.node in causes]
    took = [set(case.plan.measurement(id_).nodes) & known for id_ in effect.evidence if id_ in case.planned]
    if not took or not all(nodes & causes.keys() for nodes in took):
        return []
    return sorted({node for nodes in took for node in nodes if node in causes})


def _one(nodes: Sequence[str], joined: _Joined) -> Finding:
    about = _about(nodes, joined)
    effects, causes = joined.effects, joined.causes
    doubt = 1 - min((e.confidence for e in effects if e.confidence is not None), default=0.5)
    words = [f"{c.about}: {c.text}" if len(nodes) > 1 else c.text for c in causes]
    return Finding(
        kind="cluster" if about.kind == "group" else about.kind,
        about=about,
        text=_joined(e.text for e in effects),
        cause=f"found by itself in preflight: {_joined(words)}",
        confidence=round(1 - doubt * (1 - JOINED), 3),
        remedy=_joined((f.remedy for f in (*causes, *effects)), ". "),
        criteria=tuple(dict.fromkeys(c for f in (*causes, *effects) for c in f.criteria)),
        evidence=tuple(dict.fromkeys(e for f in (*causes, *effects) for e in f.evidence)),
    )


def _about(nodes: Sequence[str], joined: _Joined) -> Subject:
    """The port that all of one node's effects or causes name, else the node; of several nodes the cluster."""
    if len(nodes) > 1:
        return CLUSTER
    ports = {f.about.ends[0] for f in (*joined.effects, *joined.causes) if f.about.kind == "port"}
    return Subject.port(ports.pop()) if len(ports) == 1 else Subject.node(nodes[0])


def _joined(texts: Iterable[str], by: str = "; ") -> str:
    return by.join(dict.fromkeys(texts))


# --- what the inventory says of a port's rate -------------------------------------------------------------------


RATED = ("tr.tcpbw", "tr.rdmabw", "tr.rdmagpu", "tr.incast", "tr.alltoall")
"""Criteria whose floor is a share of the fabric's line rate."""


def slower_declared(case: Case) -> dict[str, dict[str, float]]:
    """Node -> its ports whose declared rate is less than the one that all are judged by, which is what they do."""
    link = case.topology.lab_link
    wanted = link.rate_gbps if link is not None else case.fabric.line_rate_gbps
    return {
        node.name: {p.interface: p.rate_gbps for p in node.ports if p.rate_gbps is not None and p.rate_gbps < wanted}
        for node in case.topology.nodes
    }


def with_declared(case: Case, findings: Iterable[Finding]) -> list[Finding]:
    """Findings of a rate without a cause that ports took part in of which the inventory declares a smaller one."""
    slow = slower_declared(case)
    if not any(slow.values()):
        return list(findings)
    link = case.topology.lab_link
    name, wanted = ("the lab link", link.rate_gbps) if link else (case.fabric.name, case.fabric.line_rate_gbps)
    told: list[Finding] = []
    for finding in findings:
        ends = {
            end
            for id_ in finding.evidence
            if id_ in case.planned and finding.criteria[0] in RATED
            for end in case.plan.measurement(id_).endpoints
        }
        mine = {str(end): slow[end.node][end.port] for end in ends if end.port in slow.get(end.node, {})}
        if finding.about.kind == "port":  # what other ports are slower explains none of its pairs with the rest
            mine = {port: rate for port, rate in mine.items() if port == str(finding.about)} or (
                mine if finding.confidence is None else {}
            )
        if mine and not finding.cause:
            said = ", ".join(f"{rate:g} Gbit/s for {port}" for port, rate in sorted(mine.items()))
            finding = finding.model_copy(
                update={
                    "cause": f"the inventory declares {said}, and {name} has {wanted:g}: judged by that, they are no "
                    "proof of a fault",
                    "remedy": "Judge these ports by a fabric of their own rate (an inventory of their own), or declare "
                    f"what was ordered. {finding.remedy}",
                }
            )
        told.append(finding)
    return told


# --- what sets a node apart -------------------------------------------------------------------------------------


def with_differences(case: Case, findings: Iterable[Finding]) -> list[Finding]:
    """Findings of a slow port or node without a cause: in what its facts differ from all others of its group."""
    told: list[Finding] = []
    facts = case.node_facts()
    for finding in findings:
        differences: list[str] = []
        if not finding.cause and finding.confidence is not None and finding.about.kind in ("node", "port"):
            end = finding.about.ends[0]
            differences = odd_facts(facts, _group(case, end.node), end.node, end.port)
        if differences:
            cause = f"probable, for it sets {end.node} apart from the others: {'; '.join(differences)}"
            finding = finding.model_copy(update={"cause": cause})
        told.append(finding)
    return told


def _group(case: Case, name: str) -> list[str]:
    """The others of the node's groups; all others where these are fewer than two."""
    mine = case.nodes.get(name)
    if mine is None:
        return []
    others = [n.name for n in case.topology.nodes if n.name != name]
    equals = [n for n in others if set(case.nodes[n].groups) & set(mine.groups)]
    return equals if len(equals) > 1 else others


COMPARED = {
    "kernel": "kernel",
    "driver": "driver",
    "ofed": "OFED",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "openmpi": "Open MPI",
    "cpu_model": "processor",
    "cpu_count": "number of processors",
    "virt": "virtualisation",
}
"""Facts of a node by which its rates may differ, in words."""


def _parts(facts: NodeFacts, port: str) -> dict[str, str]:
    """What is compared, in words -> its value; what is not known is not there."""
    found = {words: str(getattr(facts, key) or "") for key, words in COMPARED.items()}
    for one in facts.fabric_ports:
        if port in ("", one.interface):
            found[f"MTU of {one.interface}"] = str(one.mtu or "")
            found[f"speed of {one.interface} in Mbit/s"] = str(one.speed_mbit or "")
    for card in facts.pci:
        if card.what == "nic" and port in ("", card.interface) and card.address:
            name = card.interface
            found[f"PCI Express link of {name}"] = str(card.link) if card.link.whole else ""
            found[f"firmware of {name}"] = card.firmware
            found[f"NUMA node of {name}"] = "" if card.numa is None else str(card.numa)
            found[f"largest read request of {name} in bytes"] = str(card.read_request_bytes or "")
    found["RDMA device of a port"] = ", ".join(
        "yes" if one.rdma is not None else "none" for one in facts.fabric_ports if port in ("", one.interface)
    )
    return {words: value for words, value in found.items() if value}


def odd_facts(facts: Mapping[str, NodeFacts], others: Sequence[str], node: str, port: str = "") -> list[str]:
    """In words, what of a node (or of one port of it) is unlike what all the others that say it agree on.

    At least two others must say it, so that one alone is not the measure of another.
    """
    if node not in facts:
        return []
    theirs = [_parts(facts[name], port) for name in others if name in facts]
    said = []
    for words, value in _parts(facts[node], port).items():
        values = Counter(parts[words] for parts in theirs if words in parts)
        if len(values) == 1 and values.total() >= 2 and value not in values:
            said.append(f"{words} is {value}, of the {values.total()} others {next(iter(values))}")
    return said
