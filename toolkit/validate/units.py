"""A unit of a site: the nodes of one group of its inventory, such as a rack, which are accepted by themselves."""

from __future__ import annotations

from toolkit.errors import UsageFault
from toolkit.inventory import Site
from toolkit.node_groups import groups_of, known, members
from validation.model import UnitPart


def of_unit(site: Site, unit: str | None) -> Site:
    """The site with the nodes of the group `unit` alone; as it is where that is None. UsageFault for an unknown one."""
    if unit is None:
        return site
    topology = site.topology
    nodes = members(site, unit)
    if not nodes:
        raise UsageFault(f"--unit: the inventory has no nodes in a group {unit!r}; {known(site, unit)}")
    names = {node.name for node in nodes}
    hosts = tuple(host for host in site.record.hosts if host.name in names)
    return site._replace(
        topology=topology.model_copy(update={"nodes": nodes}),
        record=site.record.model_copy(update={"hosts": hosts}),
        part=_part(site, names),
    )


def _part(site: Site, names: set[str]) -> UnitPart:
    of_group: dict[str, set[str]] = {}
    for node, groups in groups_of(site).items():
        for group in groups:
            of_group.setdefault(group, set()).add(node)
    return UnitPart(
        elsewhere=tuple(node.name for node in site.topology.nodes if node.name not in names),
        within=tuple(sorted(group for group, nodes in of_group.items() if nodes <= names)),
        apart=tuple(sorted(group for group, nodes in of_group.items() if not nodes & names)),
    )
