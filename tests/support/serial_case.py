"""Servers with parts as BMC and node list them, of constructed documents, for the tests of serial numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.hardware_case import Rack, reading
from tests.support.site import FACTS, REAL_FACTS
from validation.measures.hardware.facts import BmcNode
from validation.measures.hardware.listed import listed
from validation.model.listed_parts import ListedKind, ListedPart, ServerParts
from validation.model.node_facts import NodeFacts


def bmc_of(rack: Rack, name: str) -> BmcNode:
    """What the BMC of a node of the rack says."""
    return BmcNode.model_validate({**reading(rack.docs[name], **rack.read[name]), "node": name}, strict=False)


def facts_of(parts: Mapping[str, Any] | None, **more: Any) -> NodeFacts:
    """A node's own facts with these parts."""
    return NodeFacts.model_validate({**FACTS, **REAL_FACTS, "parts": parts, **more}, strict=False)


def servers(rack: Rack, bmc: bool = True, node: bool = True) -> tuple[ServerParts, ...]:
    """The lists of all servers of the rack; `bmc`, `node`: who was read."""
    return tuple(
        listed(name, bmc_of(rack, name) if bmc else None, facts_of(rack.hosts[name], gpu_count=8) if node else None)
        for name in rack.names
    )


def part(kind: ListedKind, serial: str | None, slot: str | None = "1", **more: Any) -> ListedPart:
    """A part that the BMC lists."""
    return ListedPart(kind=kind, slot=slot, serial=serial, by=("bmc",), **more)


def server(node: str, *parts: ListedPart, tag: str | None = None, unread: Mapping[str, str] = {}) -> ServerParts:
    """A server whose BMC listed all parts but those kinds in `unread` (kind -> why)."""
    from validation.model.listed_parts import KINDS, KindRead

    read = tuple(
        KindRead(kind=kind, by=() if kind in unread else ("bmc",), why=(unread[kind],) if kind in unread else ())
        for kind in KINDS
    )
    return ServerParts(node=node, service_tag=tag or f"TAG-{node}", parts=parts, read=read)
