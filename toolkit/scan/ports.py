"""Which ports of a node are its fabric's, and why the others are not. No I/O."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from itertools import combinations

from toolkit.scan.answer import Answer, ScannedPort
from validation.base.counting import number_of

LEAST_GBPS = 10.0
"""Below this a port is no fabric's: no profile of toolkit/fabrics is slower."""


@dataclass(frozen=True)
class Choice:
    """Ports of the fabric in the order of their names, the others with a reason, and what nobody could be sure of."""

    ports: tuple[ScannedPort, ...]
    others: tuple[tuple[ScannedPort, str], ...] = ()
    checks: tuple[str, ...] = ()


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts ens9np0 before ens31np0."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def management(answer: Answer, address: str) -> str | None:
    """The port that we came in by."""
    wanted = {address, answer.reached_at}
    for port in answer.ports:
        if any(own.split("/")[0] in wanted for own in port.addresses):
            return port.interface
    return None


def _unfit(port: ScannedPort, answer: Answer, came_in_by: str | None) -> str:
    """Why a port is not the fabric's, whatever the others are; "" where it could be."""
    if port.interface == came_in_by:
        return "carries the management address"
    if port.card is None and answer.virt == "none":
        return "no PCI card: of the BMC, USB or made by software"
    if port.virtual_function:
        return "a virtual function"
    if port.no_cable:
        return port.no_cable
    if port.master:
        return f"part of {port.master}"
    if port.rate_gbps is not None and port.rate_gbps < LEAST_GBPS:
        return f"{port.rate_gbps:g} Gbit/s"
    if port.card is None and not port.addresses:
        return "made by software"
    return ""


def choose(answer: Answer, address: str) -> Choice:
    """The fabric's ports: those with RDMA where any has it, the fastest of them, and beside GPUs where too many."""
    came_in_by = management(answer, address)
    others = [(port, reason) for port in answer.ports if (reason := _unfit(port, answer, came_in_by))]
    left = [port for port in answer.ports if not _unfit(port, answer, came_in_by)]
    checks: list[str] = [] if came_in_by else ["which port carries the management address was not found"]

    def keep(good: list[ScannedPort], why_not: str) -> list[ScannedPort]:
        others.extend((port, why_not) for port in left if port not in good)
        return good

    with_rdma = [port for port in left if port.rdma is not None]
    if with_rdma:
        left = keep(with_rdma, "no RDMA device")
    fastest = max((port.rate_gbps for port in left if port.rate_gbps is not None), default=None)
    left = keep([p for p in left if p.rate_gbps in (None, fastest)], "slower than the others")
    if answer.gpus and len(left) > len(answer.gpus):
        roots = {gpu.root_port for gpu in answer.gpus} - {""}
        beside = [port for port in left if port.card is not None and port.card.root_port in roots]
        if len(beside) == len(answer.gpus):
            left = keep(beside, "shares no port of the host with a GPU; storage?")
        else:
            checks.append(
                f"{number_of(len(left), 'port')} for {number_of(len(answer.gpus), 'GPU')}: leave out those "
                "that are not the fabric's"
            )
    elif not answer.gpus and len(left) > 1:
        checks.append(f"{number_of(len(left), 'port')} are alike: leave out those that are not the fabric's")
    left.sort(key=lambda port: natural(port.interface))
    others.sort(key=lambda other: natural(other[0].interface))
    return Choice(tuple(left), tuple(others), tuple(checks))


def two_in_one_network(ports: tuple[ScannedPort, ...]) -> str | None:
    """Words for two ports of a node with addresses in one network; None where each rail has its own."""
    networks = [(p.interface, ipaddress.ip_interface(a).network) for p in ports for a in p.addresses]
    for (one, first), (other, second) in combinations(networks, 2):
        if one != other and first.overlaps(second):
            return (
                f"ports {one} and {other} are both in {first}: answers leave by one of them whatever was asked of; "
                f"give each rail a network of its own there, or take the address off one, and read it again"
            )
    return None


def two_managers(ports: tuple[ScannedPort, ...]) -> str | None:
    """Words for a port that two programs configure; None where each has one at most."""
    for port in ports:
        if len(port.managers) > 1:
            return (
                f"port {port.interface} is managed by {' and '.join(port.managers)}: take it out of "
                f"{port.managers[-1]}'s files, or the one that comes last wins at each boot"
            )
    return None
