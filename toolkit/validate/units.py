"""A unit of a site: the nodes of one group of its inventory, such as a rack, which are accepted by themselves."""

from __future__ import annotations

from toolkit.errors import UsageFault
from toolkit.inventory import Site
from toolkit.node_groups import known, members


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
    )
