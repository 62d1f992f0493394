"""Nodes of a group of an inventory, whichever: a rack, a unit, servers. A node itself knows only of its part's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from toolkit.errors import or_nearest
from toolkit.inventory import Site
from validation.model import Node

MOST_NAMED = 12


def not_named(part: str, nodes: Sequence[str], groups: Iterable[str]) -> str:
    """What every command says of a part of --limit that fits no node and no group."""
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    others = f"there are: {', '.join(nodes[:MOST_NAMED])}{more}"
    near = or_nearest(part, dict.fromkeys((*nodes, *groups)), others, numbered=True)
    return f"--limit {part}: no such node or group; {near}"


def groups_of(site: Site) -> Mapping[str, tuple[str, ...]]:
    """Node -> all groups that it is in."""
    every = {host.name: host.groups for host in site.record.hosts}
    return {node.name: every.get(node.name, ()) for node in site.topology.nodes}


def members(site: Site, group: str) -> tuple[Node, ...]:
    """The nodes of a group, in their order; none where it has none."""
    groups = groups_of(site)
    return tuple(node for node in site.topology.nodes if group in groups[node.name])


def known(site: Site, group: str) -> str:
    """What to say where no node is in a group: the nearest, or those that there are."""
    names = sorted({one for groups in groups_of(site).values() for one in groups})
    return or_nearest(group, names, f"it has {', '.join(names[:MOST_NAMED]) or 'none'}")
