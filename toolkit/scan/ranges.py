"""What is regular in a group, as ranges and rules of rails.yml (plugins/inventory/rails.py). No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from toolkit.scan.propose import NodeProposal, PortLine

RAIL, HOST = "{rail}", "{host}"
_NUMBERS = re.compile(r"(\d+)")


class Rules(NamedTuple):
    """A group in few words: `gpu[1:4]`, `198.51.100.[31:34]`, and the ports of each node, if any."""

    names: str
    ansible_host: str
    ports: PortLine | None  # with a range of interfaces, and {rail} and {host} in the address


def as_range(words: Sequence[str]) -> str | None:
    """`gpu[1:4]` of gpu1 to gpu4; None where they are not one number that counts up by one."""
    parts = [_NUMBERS.split(word) for word in words]
    if not words or len({len(one) for one in parts}) != 1:
        return None
    columns = list(zip(*parts, strict=True))
    moving = [position for position, column in enumerate(columns) if len(set(column)) > 1]
    if not moving:
        return words[0] if len(words) == 1 else None
    (position, *others) = moving
    column = columns[position]
    if others or position % 2 == 0 or any(str(int(number)) != number for number in column):
        return None
    numbers = [int(number) for number in column]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    before, after = "".join(parts[0][:position]), "".join(parts[0][position + 1 :])
    return f"{before}[{numbers[0]}:{numbers[-1]}]{after}"


def _address(nodes: Sequence[NodeProposal]) -> str | None:
    """`10.80.{rail}.{host}/24`, where that gives every port of every node its address; None where nothing does."""
    first = nodes[0]
    own = first.read.login.address.rpartition(".")[2]
    rails = [port.address for port in first.ports]
    zero, _, length = rails[0].partition("/")
    numbers = zero.split(".")
    host_at = 3 if numbers[3] == own and len(nodes) > 1 else None
    if host_at is not None:
        numbers[3] = HOST
    if len(rails) > 1:
        moving = [i for i in range(4) if i != host_at and rails[0].split("/")[0].split(".")[i] != _number(rails[1], i)]
        if len(moving) != 1:
            return None
        numbers[moving[0]] = RAIL
    pattern = f"{'.'.join(numbers)}/{length}"
    for node in nodes:
        host = node.read.login.address.rpartition(".")[2]
        made = [pattern.replace(RAIL, str(rail)).replace(HOST, host) for rail in range(len(node.ports))]
        if made != [port.address for port in node.ports]:
            return None
    return pattern


def _number(address: str, position: int) -> str:
    return address.split("/")[0].split(".")[position]


def rules(nodes: Sequence[NodeProposal]) -> Rules | None:
    """The rules that say all of a group; None where a node has something to itself, and lines of its own."""
    if len(nodes) < 2 or any(n.read.login.port != 22 or n.read.wanted.user is not None for n in nodes):
        return None
    alike = {
        (
            node.checks,
            tuple(node.bom.items()),
            tuple((port.interface, why) for port, why in node.choice.others),
            tuple((port.interface, port.rate_gbps, port.link_layer) for port in node.ports),
        )
        for node in nodes
    }
    names = as_range([node.name for node in nodes])
    addresses = as_range([node.read.login.address for node in nodes])
    if len(alike) != 1 or names is None or addresses is None:
        return None
    if not nodes[0].ports:
        return Rules(names, addresses, None)
    interfaces, address = as_range([port.interface for port in nodes[0].ports]), _address(nodes)
    one = {(port.rate_gbps, port.link_layer) for port in nodes[0].ports}
    if interfaces is None or address is None or len(one) != 1:
        return None
    ((rate_gbps, link_layer),) = one
    return Rules(names, addresses, PortLine(interfaces, address, rate_gbps, link_layer))
