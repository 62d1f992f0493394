"""Where nodes differ from the inventory that lists them. No I/O, and nothing is ever written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toolkit.scan.answer import Answer
from toolkit.scan.propose import NodeProposal, Proposal
from validation.base.counting import number_of
from validation.model import Node, Port, Topology


class Difference(NamedTuple):
    """What the inventory says of a node, and what is there."""

    node: str
    what: str
    inventory: str
    found: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.node}: {self.what}: the inventory says {self.inventory}, the node {self.found}"


def _address(port: Port) -> str:
    return f"{port.address}/{port.prefix}"


def _port(node: Node, port: Port, answer: Answer) -> list[Difference]:
    there, label = answer.port(port.interface), f"port {port.interface}"
    if there is None:
        names = ", ".join(p.interface for p in answer.ports if p.card is not None) or "no other"
        return [Difference(node.name, label, "it is a fabric port", f"has none of that name, but {names}")]
    found = []
    if there.addresses and _address(port) not in there.addresses:
        found.append(Difference(node.name, f"address of {label}", _address(port), ", ".join(there.addresses)))
    if port.rate_gbps is not None and there.rate_gbps is not None and there.rate_gbps < port.rate_gbps:
        said = f"{there.rate_gbps:g} Gbit/s at most"
        found.append(Difference(node.name, f"rate of {label}", f"{port.rate_gbps:g} Gbit/s", said))
    return found


def _bom(node: Node, seen: NodeProposal) -> list[Difference]:
    """What of the bill of materials is known of the node and is otherwise there."""
    sure = dict(seen.bom)
    if not seen.answer.gpu_names:
        sure.pop("gpu_model", None)  # by PCI id: not the words of the tool that validation asks
    if any(port.nic_model.startswith("0x") for port in seen.choice.ports):
        sure.pop("nic_model", None)
    sure.pop("fabric_port_count", None)  # of ports that somebody chose
    return [
        Difference(node.name, f"bom.{key}", str(declared), str(sure[key]))
        for key, declared in node.bom.model_dump().items()
        if declared is not None and key in sure and sure[key] != declared
    ]


def _node(node: Node, seen: NodeProposal) -> list[Difference]:
    found = []
    if node.name != seen.answer.name:
        found.append(Difference(node.name, "host name", node.name, seen.answer.name))
    if seen.answer.gpus and "gpu_servers" not in node.groups:
        found.append(
            Difference(node.name, "group", ", ".join(node.groups), f"has {number_of(len(seen.answer.gpus), 'GPU')}")
        )
    found += [difference for port in node.ports for difference in _port(node, port, seen.answer)]
    return found + _bom(node, seen)


def differences(topology: Topology, proposal: Proposal) -> list[Difference]:
    """Every difference, in the inventory's order. Ports that it leaves out are somebody's choice, and no difference."""
    seen = {(node.read.login.address, node.read.login.port): node for node in proposal.nodes}
    return [
        difference
        for node in topology.nodes
        if (node.ssh.host, node.ssh.port) in seen
        for difference in _node(node, seen[node.ssh.host, node.ssh.port])
    ]


def new_nodes(topology: Topology, proposal: Proposal) -> Sequence[NodeProposal]:
    """Nodes that were read and the inventory lacks."""
    listed = {(node.ssh.host, node.ssh.port) for node in topology.nodes}
    return [n for n in proposal.nodes if (n.read.login.address, n.read.login.port) not in listed]
