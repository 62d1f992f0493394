"""Facts of a node (kind facts): hardware, software, settings."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator

from validation.model.base import Model
from validation.model.driver import DriverLibraries, DriverModule, Gpudirect
from validation.model.facts import Count, Facts, Name, Positive, once
from validation.model.node_state import NodeState
from validation.model.nvlink import NvGpu
from validation.model.parts import HostParts
from validation.model.pci import NumaNode, PciCard
from validation.model.tuning import Tuning


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
    carrier_changes: Count | None = None  # how often its link came or went since it was made

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


class Drift(Model):
    """A package that was provisioned in one version and is there in another; `found` "" where it is gone."""

    package: Name
    found: str
    provisioned: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.package} is {self.found or 'absent'}, {self.provisioned} was provisioned"


class Setting(Model):
    """A setting of a library on the node, and the file or session that it is from."""

    name: Name
    value: str
    where: str

    def __str__(self) -> str:
        """`NCCL_ALGO=Ring (/etc/nccl.conf)`."""
        return f"{self.name}={self.value} ({self.where})"


class LibraryEnv(Model):
    """What is set for NCCL and UCX. `unread`: what of it could not be looked at, in words."""

    settings: tuple[Setting, ...]
    unread: str = ""


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


class Ports(Facts):
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


class NumaGap(NamedTuple):
    """How far two NUMA nodes are apart; None: nothing tells."""

    across_sockets: bool | None
    distance: int | None

    def __str__(self) -> str:
        """`another socket, distance 21`."""
        sockets = {None: "", True: "another socket", False: "the same socket"}[self.across_sockets]
        return ", ".join(filter(None, (sockets, f"distance {self.distance}" if self.distance is not None else "")))


class NodeFacts(Ports, Components):
    """Hardware, software and settings of a node. `lab` "" and `virt` none: nothing shows that it is virtual."""

    type: Literal["node"] = "node"
    virt: Name  # systemd-detect-virt: none, kvm, systemd-nspawn ...
    lab: str
    constructed: bool = False  # nobody looked at a node: what stands here was made up, as an example
    model: str
    cpu_count: Count | None = None  # processors that a program may use here
    cpu_model: str | None = None  # as the kernel names it
    cpu_sockets: Count | None = None
    cpu_cores: Count | None = None  # of all sockets, without hyper-threading
    memory_gib: Positive | None = (
        None  # of 2^30 bytes, of NUMA nodes with processors, with what the kernel took at boot
    )
    memory_beside_gib: Positive | None = None  # of NUMA nodes without: a GPU's, on CXL, of high bandwidth; None: none
    gpu_count: Count
    gpu_model: str
    nic_model: str
    pci: tuple[PciCard, ...]
    numa_nodes: tuple[NumaNode, ...] = ()
    nvlink: tuple[NvGpu, ...] | None = None  # None: NVML did not say
    nvlink_unread: str = ""  # why not
    nvlink_disabled: bool = False  # by the driver's parameter NVreg_NvLinkDisable
    driver_module: DriverModule | None = None  # None: none is loaded
    driver_libraries: DriverLibraries | None = None  # None: nobody looked
    gpudirect: Gpudirect | None = None  # None: nobody looked
    nvswitches: tuple[str, ...] | None = None  # PCI addresses
    fabric_manager_state: str | None = None  # systemctl is-active; "" without systemd
    driver_loaded: str = ""  # version, by NVML
    docker_package: str | None = None  # `package version` of the package that Docker is from; None: not asked
    library_env: LibraryEnv | None = None  # None: not asked
    tuning: Tuning | None = None  # None: not asked
    state: NodeState | None = None  # None: not asked
    runc: str | None = None  # version of what starts Docker's containers; None: not asked
    training_nccl: str | None = None
    training_cudnn: str | None = None
    training_image: str | None = None  # by its digest
    parts: HostParts | None = None  # serial numbers; None: not asked, or a container, whose parts are its host's
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

    @field_validator("nvlink")
    @classmethod
    def _gpus_once(cls, gpus: tuple[NvGpu, ...] | None) -> tuple[NvGpu, ...] | None:
        return None if gpus is None else once(gpus, "address")

    @field_validator("numa_nodes")
    @classmethod
    def _nodes_once(cls, nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
        return once(nodes, "number")

    def far(self, one: int, other: int) -> NumaGap | None:
        """How far two NUMA nodes are apart; None where nothing tells."""
        known = {node.number: node for node in self.numa_nodes}
        if one not in known or other not in known:
            return None
        here, there = known[one], known[other]
        across = None if here.socket is None or there.socket is None else here.socket != there.socket
        place = sorted(known).index(other)
        distance = here.distances[place] if place < len(here.distances) else None
        return None if across is None and distance is None else NumaGap(across, distance)
