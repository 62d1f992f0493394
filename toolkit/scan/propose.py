"""From what the nodes answered to the parts of an inventory, each with what nobody could be sure of. No I/O."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolkit.inventory_address import is_ipv6
from toolkit.scan.answer import HOST_NAME, Answer, ScannedPort
from toolkit.scan.ports import Choice, choose, two_in_one_network, two_managers
from toolkit.scan.reading import Read
from toolkit.scan.served import Served
from toolkit.scan.wanted import GROUPS
from validation.base.counting import number_of
from validation.rules.fabric import Fabric

HEAD = re.compile(r"head|login|master|mgmt|admin|ctl|slurm", re.IGNORECASE)
RAIL = "{rail}"
Scalar = str | int | float


@dataclass(frozen=True)
class PortLine:
    """An entry of fabric_ports."""

    interface: str
    address: str
    rate_gbps: float | None
    link_layer: str


@dataclass(frozen=True)
class NodeProposal:
    """A node as the inventory would have it. `bom`: the bill of materials that fits what is there."""

    name: str
    read: Read
    answer: Answer
    choice: Choice
    group: str
    ports: tuple[PortLine, ...]
    bom: dict[str, Scalar]
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A machine that cannot be in the inventory, and why. `address`: its own, or what an inventory calls it; `name`:
    what it calls itself, where it answered.
    """

    address: str
    why: str
    name: str = ""

    @property
    def who(self) -> str:
        """`10.0.0.1 (gpu1)`."""
        return f"{self.address} ({self.name})" if self.name else self.address


@dataclass(frozen=True)
class Proposal:
    """An inventory to be. `problems`: machines that are not in it, and why."""

    nodes: tuple[NodeProposal, ...]
    problems: tuple[Problem, ...]
    also_head: str | None = None  # a GPU server that has the head's duties, where no machine is without GPUs
    bom: dict[str, dict[str, Scalar]] = field(default_factory=dict)  # of each group
    fabric: str | None = None
    fabrics: tuple[str, ...] = ()  # that would fit, where one alone does not
    checks: tuple[str, ...] = ()
    rails: str = ""

    def members(self, group: str) -> list[NodeProposal]:
        """The nodes of a group."""
        return [node for node in self.nodes if node.group == group]


def propose(
    reads: Sequence[Read],
    rails: str,
    served: Served,
    fabrics: Sequence[Fabric],
) -> Proposal:
    """`rails`: network of new addresses, with {rail}."""
    problems = [
        Problem(read.wanted.address, read.outcome.words) for read in reads if not isinstance(read.outcome, Answer)
    ]
    answered = [(read, read.outcome) for read in reads if isinstance(read.outcome, Answer)]
    good = []
    for read, answer in answered:
        wrong = _wrong(read, answer, answered) or served.why_not(answer, read.wanted.group)
        if wrong:
            problems.append(Problem(read.wanted.address, wrong, answer.name))
        else:
            good.append((read, answer))
    groups, guessed = _groups(good)
    nodes: list[NodeProposal] = []
    taken: dict[str, str] = {}
    for read, answer in good:
        node = _node(read, answer, groups[read.wanted.address], rails, served)
        if read.wanted.address in guessed:
            node = replace(node, checks=(*node.checks, guessed[read.wanted.address]))
        clash = next((taken[p.address.split("/")[0]] for p in node.ports if p.address.split("/")[0] in taken), None)
        if clash:
            words = f"its fabric addresses would be those of {clash}; give them addresses there, or other --rails"
            problems.append(Problem(node.name, words))
            continue
        taken |= {port.address.split("/")[0]: node.name for port in node.ports}
        nodes.append(node)
    return _whole(nodes, problems, rails, fabrics)


def _wrong(read: Read, answer: Answer, all_of_them: Sequence[tuple[Read, Answer]]) -> str | None:
    """Why a node that answered cannot be in an inventory as it is."""
    before = True  # of one machine that is listed twice the first is taken
    for other, theirs in all_of_them:
        if other is read:
            before = False
            continue
        if answer.machine_id == theirs.machine_id and _macs(answer) & _macs(theirs):
            if before:
                return f"is the same machine as {other.wanted.address}; remove one of them from the list"
        elif answer.name == theirs.name:
            return f"calls itself {answer.name}, as {other.wanted.address} does: hostnamectl hostname NAME"
    if not re.match(HOST_NAME, answer.name) or answer.name.lower() in ("localhost", "all", *GROUPS):
        return f"its host name is {answer.name!r}, which no inventory can use: hostnamectl hostname NAME"
    if read.wanted.name is not None and read.wanted.name != answer.name:
        cure = f"hostnamectl hostname {read.wanted.name}, or correct the list"
        return f"calls itself {answer.name}, and {read.wanted.place} calls it {read.wanted.name}: {cure}"
    if is_ipv6(answer.reached_at) and not answer.over_ipv4:
        return (
            f"was reached at {answer.reached_at} and has no IPv4 address, and this release manages nodes over IPv4 "
            "alone: give its management port one"
        )
    chosen = choose(answer, read.login.address).ports
    return two_in_one_network(chosen) or two_managers(chosen)


def _macs(answer: Answer) -> set[str]:
    return {port.mac for port in answer.ports if port.card is not None}


def _groups(good: Sequence[tuple[Read, Answer]]) -> tuple[dict[str, str], dict[str, str]]:
    """Address -> group; and address -> what of that was a guess."""
    groups: dict[str, str] = {}
    guessed: dict[str, str] = {}
    for read, answer in good:
        groups[read.wanted.address] = read.wanted.group or ("gpu_servers" if answer.gpus else "clients")
    if "heads" in groups.values():
        return groups, guessed
    without = [(r, a) for r, a in good if groups[r.wanted.address] == "clients" and r.wanted.group is None]
    named = [(r, a) for r, a in without if HEAD.search(a.name)]
    if without:
        read, answer = (named or without)[0]
        groups[read.wanted.address] = "heads"
        why = "by its name" if named else "the first machine without a GPU"
        guessed[read.wanted.address] = f"taken for the head: {why}"
    return groups, guessed


def _node(read: Read, answer: Answer, group: str, rails: str, served: Served) -> NodeProposal:
    choice = choose(answer, read.login.address)
    checks = list(choice.checks)
    lines, proposed = [], []
    for rail, port in enumerate(choice.ports):
        address = port.addresses[0] if port.addresses else _address(rails, rail, read.login.address)
        if not port.addresses:
            proposed.append(port.interface)
        lines.append(PortLine(port.interface, address, port.rate_gbps, port.link_layer))
    if proposed:
        checks.append(f"addresses by the rule {rails}, for {_few(proposed)} had none: is each on its rail's leaf?")
    unknown = [port.interface for port in choice.ports if port.rate_gbps is None]
    if unknown:
        checks.append(f"neither driver nor ethtool says the rate of {_few(unknown)}")
    down = [p.interface for p in choice.ports if p.operstate != "up"]
    if down:
        checks.append(f"no link on {_few(down)}")
    slow = [p.interface for p in choice.ports if p.speed_mbit and p.rate_gbps and p.speed_mbit < p.rate_gbps * 1000]
    if slow:
        checks.append(f"the link of {_few(slow)} is slower than the port can be")
    if answer.root == "with password":
        checks.append(f"{read.login.user} becomes root by a password: set it in a vault (docs/how-to/vault.md)")
    for one in answer.belongings:
        checks.append(f"somebody else's {one}: refused by preflight unless preflight_take_over has {one.component}")
    bom, doubts = _bom(answer, choice.ports, served)
    return NodeProposal(answer.name, read, answer, choice, group, tuple(lines), bom, (*checks, *doubts))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _address(rails: str, rail: int, management: str) -> str:
    """The address of a port in its rail's network: the node has the same last number as in the management network."""
    network = ipaddress.IPv4Network(rails.replace(RAIL, str(rail)))
    try:
        number = int(ipaddress.IPv4Address(management)) & int(network.hostmask)
    except ValueError:  # a name
        number = 0
    return f"{network.network_address + (number or 1)}/{network.prefixlen}"


def _bom(answer: Answer, ports: Sequence[ScannedPort], served: Served) -> tuple[dict[str, Scalar], list[str]]:
    """The bill of materials, in the words of the tools that validation asks later."""
    checks = []
    found: dict[str, Scalar | None] = {"model": answer.model, "gpu_model": None, "gpu_count": len(answer.gpus)}
    if answer.gpu_names:
        found["gpu_model"] = ", ".join(sorted(set(answer.gpu_names)))
        if len(answer.gpu_names) != len(answer.gpus):
            checks.append(f"nvidia-smi lists {number_of(len(answer.gpu_names), 'GPU')}, the PCI bus {len(answer.gpus)}")
    elif answer.gpus:
        by_id = {served.model(gpu) for gpu in answer.gpus}
        found["gpu_model"] = ", ".join(sorted(by_id))
        unknown = sorted({gpu.device for gpu in answer.gpus if gpu.device not in served.models})
        if unknown:
            checks.append(f"GPUs with PCI id {_few(unknown)} are not in this release's table of models")
        checks.append("gpu_model is by PCI id, for there is no driver: write what nvidia-smi -L says once there is one")
    models = {port.nic_model for port in ports} - {""}
    if ports and any(model.startswith("0x") or not model for model in (port.nic_model for port in ports)):
        checks.append("nic_model without lspci (pciutils): write what lspci says")
    found |= {"nic_model": ", ".join(sorted(models)) or None, "fabric_port_count": len(ports)}
    found |= {"cpu_model": answer.cpu_model, "cpu_sockets": answer.cpu_sockets, "cpu_cores": answer.cpu_cores}
    return {key: value for key, value in found.items() if value not in (None, "")}, checks


def _whole(nodes: list[NodeProposal], problems: list[Problem], rails: str, fabrics: Sequence[Fabric]) -> Proposal:
    nodes.sort(key=lambda node: ipaddress_key(node.read.login.address))
    bom: dict[str, dict[str, Scalar]] = {}
    compared = []
    for group in GROUPS:
        members = [node for node in nodes if node.group == group]
        if members:
            bom[group] = _common([node.bom for node in members])
        compared += [replace(node, checks=(*node.checks, *_deviates(node, bom[group]))) for node in members]
    rates = {port.rate_gbps for node in nodes for port in node.ports if port.rate_gbps is not None}
    layers = {port.link_layer for node in nodes for port in node.ports}
    rdma = any(p.rdma is not None for node in nodes for p in node.choice.ports)
    fits = [
        f.name
        for f in fabrics
        if {f.line_rate_gbps} == rates and {f.link_layer.lower()} == layers and f.needs_rdma == rdma
    ]
    checks = []
    if len(rates) > 1:
        checks.append(f"fabric ports of different rates: {', '.join(f'{rate:g}' for rate in sorted(rates))} Gbit/s")
    gpu_servers = [node for node in nodes if node.group == "gpu_servers"]
    also_head = None
    if gpu_servers and not any(node.group == "heads" for node in nodes):
        also_head = gpu_servers[0].name
        checks.append(f"every machine has GPUs, so {also_head} has the head's duties too, beside its GPUs")
    if not gpu_servers:
        checks.append("no machine with a GPU was found: an inventory needs one in gpu_servers")
    fabric = fits[0] if len(fits) == 1 else None
    order = tuple(sorted(problems, key=lambda problem: ipaddress_key(problem.address)))
    return Proposal(tuple(compared), order, also_head, bom, fabric, tuple(fits), tuple(checks), rails)


def ipaddress_key(address: str) -> tuple[int, str]:
    """Sorts addresses by number, names after them."""
    try:
        return int(ipaddress.IPv4Address(address)), ""
    except ValueError:
        return 1 << 32, address


def _common(boms: Sequence[dict[str, Scalar]]) -> dict[str, Scalar]:
    """What most nodes of a group have."""
    keys = dict.fromkeys(key for bom in boms for key in bom)
    found: dict[str, Scalar] = {}
    for key in keys:
        value, count = Counter(bom.get(key) for bom in boms).most_common(1)[0]
        if value is not None and count * 2 >= len(boms):
            found[key] = value
    return found


def _deviates(node: NodeProposal, common: Mapping[str, Scalar]) -> list[str]:
    """Where a node is not as most of its group: is something missing in it?"""
    return [
        f"{key} is {node.bom.get(key, 'not known')} here, {value} in most of {node.group}"
        for key, value in common.items()
        if node.bom.get(key) != value
    ]
