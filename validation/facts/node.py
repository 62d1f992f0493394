"""Facts of a node (kind facts): hardware, software, settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from validation.facts.common import Count, Name, Positive, once
from validation.model_base import Model


class RdmaDevice(Model):
    """The RDMA device that carries a port, with the number of its port there."""

    device: Name
    port: Count
    link_layer: str
    state: str  # as sysfs has it, without its number: ACTIVE, INIT, DOWN

    def __str__(self) -> str:
        """`mlx5_0/1 (Ethernet, ACTIVE)`."""
        return f"{self.device}/{self.port} ({self.link_layer}, {self.state})"


class FabricPort(Model):
    """A fabric port as sysfs shows it. `absent`: the node has no such interface."""

    interface: Name
    operstate: Literal["up", "down", "lowerlayerdown", "dormant", "testing", "notpresent", "unknown", "absent"]
    mtu: Count | None = None  # bytes
    speed_mbit: Annotated[int, Field(gt=0)] | None = None  # None: no link, or a driver that knows no speed
    rdma: RdmaDevice | None = None

    @property
    def words(self) -> str:
        """`up, MTU 9000, 100000 Mbit/s, RDMA mlx5_0/1 (Ethernet, ACTIVE)`."""
        said = [self.operstate, f"MTU {self.mtu}" if self.mtu is not None else ""]
        said += [f"{self.speed_mbit} Mbit/s" if self.speed_mbit is not None else ""]
        return ", ".join([w for w in said if w] + ([f"RDMA {self.rdma}"] if self.rdma else []))

    def __str__(self) -> str:
        """The port's name and its words."""
        return f"{self.interface}: {self.words}"


class OwnedDevice(Model):
    """An RDMA device of the node and its network interfaces there."""

    name: Name
    interfaces: tuple[str, ...]

    def __str__(self) -> str:
        """`mlx5_0 (fab0)`."""
        return f"{self.name} ({', '.join(self.interfaces) or 'no interface'})"


class PciLink(Model):
    """A PCI Express link, or what an end of it could do. None where the device does not say."""

    gt_s: Positive | None = None  # per lane
    lanes: Annotated[int, Field(gt=0)] | None = None


def _below(value: float | None, rated: float | None) -> bool:
    return value is not None and rated is not None and value < rated


class PciCard(Model):
    """A GPU or the card of a fabric port: its link, what card and slot could do, and its NUMA node.

    `address` is "" for a port without a PCI device, `numa` None where the firmware assigns none. `root_port` is the
    address of the host's port above it, behind whose one link all cards below it stand; "" where there is none.
    """

    what: Literal["nic", "gpu"]
    interface: str = ""
    address: str = ""
    link: PciLink = PciLink()
    card: PciLink = PciLink()
    slot: PciLink = PciLink()
    numa: Count | None = None
    root_port: str = ""

    @property
    def name(self) -> str:
        """`fab0 (0000:3b:00.0)` or `GPU 0000:18:00.0`."""
        return f"GPU {self.address}" if self.what == "gpu" else f"{self.interface} ({self.address or 'no PCI device'})"

    @property
    def rated(self) -> PciLink:
        """The lesser of card and slot: neither end can do more."""
        return PciLink(gt_s=_least(self.card.gt_s, self.slot.gt_s), lanes=_least(self.card.lanes, self.slot.lanes))

    @property
    def slow(self) -> bool:
        """Trained to less speed than its rating. A GPU's is no fault: it lowers its link's speed while it idles."""
        return _below(self.link.gt_s, self.rated.gt_s)

    @property
    def short(self) -> bool:
        """A fault by itself: fewer lanes than rated, or less speed on a card that never lowers it."""
        return _below(self.link.lanes, self.rated.lanes) or (self.what == "nic" and self.slow)

    @property
    def beyond(self) -> bool:
        """Above its rating, which cannot be."""
        return _below(self.rated.gt_s, self.link.gt_s) or _below(self.rated.lanes, self.link.lanes)

    def __str__(self) -> str:
        """What the link is trained to, and what it could be."""
        rated = self.rated
        return (
            f"{self.name}: {_or(self.link.gt_s)} GT/s x{_or(self.link.lanes)}, rated {_or(rated.gt_s)} GT/s "
            f"x{_or(rated.lanes)}"
        )


def _least(card: Any, slot: Any) -> Any:
    return min(card, slot) if card is not None and slot is not None else card


def _or(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


class Drift(Model):
    """A package that was provisioned in one version and is there in another; `found` "" where it is gone."""

    package: Name
    found: str
    provisioned: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.package} is {self.found or 'absent'}, {self.provisioned} was provisioned"


class Components(Model):
    """The stack of a node: version of each component, "" where it is not installed."""

    os: Name
    kernel: Name
    python: str
    openmpi: str
    docker: str
    horovod: str
    torch: str
    probes: str
    driver: str
    fabric_manager: str
    cuda: str
    cudnn: str
    nccl: str
    ofed: str
    container_toolkit: str
    dcgm: str
    slurm: str
    stack_release: str


COMPONENTS = tuple(Components.model_fields)


class Ports(Model):
    """What of a node is looked at before anything is measured: its fabric ports and RDMA devices."""

    fabric_ports: tuple[FabricPort, ...]
    rdma_devices: tuple[OwnedDevice, ...]

    @field_validator("fabric_ports")
    @classmethod
    def _ports_once(cls, ports: tuple[FabricPort, ...]) -> tuple[FabricPort, ...]:
        return once(ports, "interface")

    def port(self, interface: str) -> FabricPort | None:
        """The port of that name; None where it was not looked at."""
        return next((port for port in self.fabric_ports if port.interface == interface), None)


class NodeFacts(Ports, Components):
    """Hardware, software and settings of a node. `lab` "" and `virt` none: nothing shows that it is virtual."""

    type: Literal["node"] = "node"
    virt: Name  # systemd-detect-virt: none, kvm, systemd-nspawn ...
    lab: str
    model: str
    cpu_count: Count | None = None  # processors that a program may use here
    cpu_model: str | None = None  # as the kernel names it
    cpu_sockets: Count | None = None
    cpu_cores: Count | None = None  # of all sockets, without hyper-threading
    memory_gib: Positive | None = None  # of 2^30 bytes; what the kernel manages, and what the firmware keeps of it
    gpu_count: Count
    gpu_model: str
    nic_model: str
    pci: tuple[PciCard, ...]
    training_nccl: str | None = None
    training_cudnn: str | None = None
    clock_offset_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    stand_ins: tuple[str, ...]
    not_applicable: tuple[str, ...]
    drift: tuple[Drift, ...]
    reboot_pending: tuple[str, ...]  # reasons

    @property
    def gpu_root_ports(self) -> int | None:
        """How many ports of the host all GPUs share; None where that is not known of one, or there is no GPU.

        A machine with a PCI Express switch above all of its GPUs has one, whose link they share.
        """
        above = [card.root_port for card in self.pci if card.what == "gpu"]
        return len(set(above)) if above and all(above) else None

    def version(self, component: str) -> str | None:
        """Version of a component, "" where it is not installed; None for what is no component."""
        found = getattr(self, component) if component in type(self).model_fields else None
        return found if isinstance(found, str) else None

    @field_validator("pci")
    @classmethod
    def _cards_once(cls, cards: tuple[PciCard, ...]) -> tuple[PciCard, ...]:
        return once(cards, "what", "interface", "address")
