"""Judging whether a node is managed by another port and in another network than the fabric's.

One network for both is a site's own choice, which small sites make: it is reported, and no fault. So is an address that
the node itself does not know.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence

from validation.judging.case import Case, facts_for, judgement
from validation.judging.each_node import Said
from validation.judging.methods import method
from validation.model import Bound, Judgement, Node, Port
from validation.model.node_facts import NodeFacts
from validation.model.node_state import Address
from validation.rules.criterion import Criterion

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@method("management", "the port that each node is managed by, beside its fabric ports")
def judge_management(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node with fabric ports: the interface that has the inventory's address of the node, and its network."""
    bound = Bound(
        metric="management_port",
        unit="",
        equal="a port that is no fabric port, with an address outside the fabric's networks",
        derivation=("address of the node and of its fabric ports by the inventory, interfaces as the node names them",),
        source=criterion.source,
    )
    fabric = [_network(port) for node in case.topology.nodes for port in node.ports]
    judged: list[Judgement] = []
    for measurement in case.serving(criterion):
        node, ids = case.topology.node(measurement.nodes[0]), [measurement.id]
        facts = facts_for(case, criterion, node.name, measurement.id, NodeFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        verdict, code, why, text, _ = _judge(node, facts, fabric)
        judged.append(judgement(criterion, node.name, verdict, code, why, ids, text=text, bound=bound))
    # a node that has none of both says nothing of the others; one network for both does
    return [one for one in judged if one.reason_code != "not-applicable"] or judged


def _network(port: Port) -> Network:
    return ipaddress.ip_network(f"{port.address}/{port.prefix}", strict=False)


def _judge(node: Node, facts: NodeFacts, fabric: Sequence[Network]) -> Said:
    """`fabric`: the networks of all nodes' fabric ports, of which a node may have some alone."""
    host, state = node.ssh.host, facts.state
    if not node.ports:
        return Said("not-applicable", "not-applicable", "no fabric port is declared")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        why = f"reported: the inventory names the node {host}: which of its addresses that is, the facts do not say"
        return Said("not-applicable", "reported", why)
    if address.is_loopback:
        return Said("not-applicable", "not-applicable", f"reached by {host}, which is no address of a network")
    if state is None or state.addresses is None:
        return Said("not-measured", "missing-metric", "the facts say nothing of the node's addresses")
    ports = {port.interface: f"{port.interface} ({port.address}/{port.prefix})" for port in node.ports}
    own = [one for one in state.addresses if _same(one.address, address)]
    if not own:
        why = (
            f"reported: no interface of the node has {host}, by which it is managed: something on the way translates it"
        )
        return Said("not-applicable", "reported", why)
    shared = [said for one in own if (said := _on_a_port(one, ports))]
    within = [str(network) for network in fabric if address in network]
    text = f"managed by {own[0].interface} ({host}), fabric: {', '.join(ports.values())}"
    if shared or within:
        what = shared[0] if shared else f"{host} is in the fabric's network {within[0]}"
        return Said("not-applicable", "reported", f"reported: no network of its own for management: {what}", text)
    return Said("pass", "within-bounds", text, text)


def _on_a_port(one: Address, ports: Collection[str]) -> str:
    """In words, that an interface is a fabric port or lies on one; "" where it does not."""
    if one.interface in ports:
        return f"{one.interface} is a fabric port"
    if one.interface.partition(".")[0] in ports:
        return f"{one.interface} is a VLAN of a fabric port"
    below = [name for name in one.over if name in ports]
    return f"{one.interface} is made of {', '.join(below)}, a fabric port" if below else ""


def _same(text: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_interface(text).ip == address
    except ValueError:
        return False
