"""A unit of a site: the nodes of one group of its inventory, such as a rack, which are accepted by themselves."""

from __future__ import annotations

from toolkit.errors import UsageFault, or_nearest
from toolkit.inventory import Site


def of_unit(site: Site, unit: str | None) -> Site:
    """The site with the nodes of the group `unit` alone; as it is where that is None. UsageFault for an unknown one."""
    if unit is None:
        return site
    topology = site.topology
    groups = {host.name: host.groups for host in site.record.hosts}  # all of them; a node's are those of its part
    nodes = tuple(node for node in topology.nodes if unit in groups.get(node.name, ()))
    if not nodes:
        known = sorted({group for node in topology.nodes for group in groups.get(node.name, ())})
        hint = or_nearest(unit, known, f"it has {', '.join(known[:12]) or 'none'}")
        raise UsageFault(f"--unit: the inventory has no nodes in a group {unit!r}; {hint}")
    names = {node.name for node in nodes}
    hosts = tuple(host for host in site.record.hosts if host.name in names)
    return site._replace(
        topology=topology.model_copy(update={"nodes": nodes}),
        record=site.record.model_copy(update={"hosts": hosts}),
    )
