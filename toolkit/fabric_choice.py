"""Which fabric is under test: by --fabric, else by the inventory; and what of the inventory contradicts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory import DeclaredFabric
from toolkit.inventory_lines import locate
from validation.base.errors import ConfigError
from validation.model import Topology
from validation.model.load import line_of
from validation.rules.fabric import Fabric, LoadedFabric, read_fabric

CONTAINER = "systemd-nspawn"
OVER_TCP = (
    "the ports of this lab's containers have no RDMA: suite training is rehearsed over TCP, and what of it needs RDMA "
    "is not measured"
)


def choose_fabric(asked: LoadedFabric | None, inventory: Path, declared: DeclaredFabric) -> LoadedFabric:
    """The profile that --fabric asked for, else the one that the inventory declares.

    UsageFault where there is neither, and where name or MTU contradict the inventory: one line with both places.
    """
    theirs = _declared(inventory, declared)
    loaded = asked or theirs
    if loaded is None:
        raise UsageFault(
            "which fabric is under test? give --fabric NAME, or set fabric in the inventory's group_vars/all; "
            "toolkit fabrics lists them"
        )
    fabric = loaded.fabric
    if theirs is not None and theirs.fabric.name != fabric.name:
        raise UsageFault(
            f"{_where(inventory, declared)}: fabric: is {declared.name}, but --fabric asks for "
            f"{_place(loaded, 'name')} {fabric.name}; leave --fabric away, or correct the inventory"
        )
    for port in declared.mtus:
        if port.link_layer == fabric.link_layer.lower() and port.mtu != fabric.mtu:
            where = locate(inventory, port.host, port.variable) or str(inventory)
            name = ".".join(str(part) for part in port.variable)
            raise UsageFault(
                f"{where}: {name}: is {port.mtu} on {port.host}, but {_place(loaded, 'mtu')} {fabric.mtu} is that of "
                f"fabric {fabric.name}; correct one of them, or choose the fabric that these ports are"
            )
    return loaded


def trains_over_tcp(topology: Topology, fabric: Fabric, suites: Sequence[str]) -> bool:
    """Whether a lab of containers rehearses the training, and nothing else, of a fabric with RDMA.

    Containers have no RDMA device whatever their inventory says. All that measures the fabric itself is refused there.
    """
    contained = topology.lab_link is not None and all(node.virtual == CONTAINER for node in topology.nodes)
    return fabric.needs_rdma and contained and set(suites) == {"training"}


def without_rdma(topology: Topology) -> Topology:
    """The same nodes; every fabric port carries TCP only."""
    nodes = [
        node.model_copy(update={"ports": tuple(port.model_copy(update={"rdma": False}) for port in node.ports)})
        for node in topology.nodes
    ]
    return topology.model_copy(update={"nodes": tuple(nodes)})


def _declared(inventory: Path, declared: DeclaredFabric) -> LoadedFabric | None:
    """The inventory's fabric: a packaged name, or the path of a file as seen from the inventory's folder."""
    name = declared.name
    if name is None:
        return None
    if "/" in name or name.endswith((".yml", ".yaml")):
        name = str((inventory if inventory.is_dir() else inventory.parent) / name)
    try:
        return read_fabric(name)
    except ConfigError as fault:
        raise ConfigError(f"{_where(inventory, declared)}: fabric: {fault}") from None


def _where(inventory: Path, declared: DeclaredFabric) -> str:
    return locate(inventory, declared.host, ("fabric",)) or str(inventory)


def _place(loaded: LoadedFabric, key: str) -> str:
    return f"{loaded.source.path}:{line_of(loaded.source, key)}: {key}:"
