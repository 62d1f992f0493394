"""Which end of a failed RDMA measurement is at fault, from what both ends said and what their devices counted.

The end that complains is often not the one that is ill: when one tool dies of a memory limit, the other one says that
its partner went away. Pure; execution adds the names of the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from validation.probes import ProbeDoc

OWN = frozenset(
    {
        "tool-missing",
        "no-device",
        "port-down",
        "no-gid",
        "gid-type",
        "link-layer",
        "mtu",
        "memlock",
        "gpu-memory",
        "tool",
    }
)
"""Faults that an end has by itself; the others are what one end sees of the way or of the other end."""


@dataclass(frozen=True)
class FaultSide:
    """`end`: the client or the server; `there` or `back`: the way from client to server, or back; `between`: unknown.

    `words` "" = what the client said stands. In words about the way `{here}` and `{there}` are the two nodes.
    """

    code: str
    end: Literal["client", "server", "there", "back", "between"]
    words: str = ""


def _code(doc: ProbeDoc | None) -> str:
    return str(doc["facts"].get("fault") or "") if doc else ""


def _count(doc: ProbeDoc | None, way: str) -> int | None:
    if doc is None:
        return None
    for unit in ("packets", "bytes"):
        found = doc["facts"].get(f"{way}_{unit}")
        if isinstance(found, int):
            return found
    return None


def fault_side(client: ProbeDoc | None, server: ProbeDoc | None, unproved: bool = False) -> FaultSide | None:
    """Who is at fault; None where nothing is known. `unproved`: the tool was content, its result was refused."""
    mine, others = _code(client), _code(server)
    if unproved:
        return FaultSide("unproved", "between")
    if mine in OWN:
        return FaultSide(mine, "client")
    if others in OWN:
        return FaultSide(others, "server", str(server["error"]) if server else "")
    if not mine and client is None:
        return None
    sent, arrived = _count(client, "sent"), _count(server, "received")
    answered, returned = _count(server, "sent"), _count(client, "received")
    if sent and arrived == 0:
        words = f"{{here}}'s RDMA port sent {sent}, {{there}}'s received none: a firewall (UDP 4791) or the switch?"
        return FaultSide("lost", "there", words)
    if answered and returned == 0:
        words = f"{{there}}'s RDMA port sent {answered}, {{here}}'s received none: a firewall (UDP 4791) or the switch?"
        return FaultSide("lost", "back", words)
    if sent == 0 and mine == "lost":
        return FaultSide("lost", "client", "its RDMA port sent nothing: a firewall (UDP 4791) on this node?")
    if arrived and answered == 0:
        words = f"its RDMA port received {arrived} and answered none: a firewall (UDP 4791) on this node?"
        return FaultSide("lost", "server", words)
    if mine == "stopped" and others and others != "stopped":
        return FaultSide(others, "between", str(server["error"]) if server else "")
    return FaultSide(mine or "timeout", "between")
