"""What the reading probe answers (validation/measures/node/inventory_scan_probe.py), typed; nothing in it is trusted.

Its words go into files that Ansible reads as templates, and onto a terminal: braces and control characters are refused.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationError

from validation.model.base import Model, explain
from validation.model.node_facts import RdmaDevice

INTERFACE = r"^[A-Za-z0-9_.:-]{1,15}$"
HOST_NAME = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,62})$"


def _plain(text: str) -> str:
    if not text.isprintable() or "{" in text or "}" in text:
        raise ValueError("contains characters that no tool prints here")
    return text


def _network(text: str) -> str:
    if "/" not in text:
        raise ValueError("has no prefix length")
    return str(ipaddress.IPv4Interface(text))


Words = Annotated[str, Field(max_length=200), AfterValidator(_plain)]
Interface = Annotated[str, Field(pattern=INTERFACE)]
Address = Annotated[str, Field(max_length=18), AfterValidator(_network)]
Count = Annotated[int, Field(ge=0, le=2**40)]
Manager = Literal["netplan", "networkd", "NetworkManager", "ifupdown"]


class Belonging(Model):
    """Something of somebody else's on the machine. `component`: what preflight_take_over calls it."""

    component: Annotated[str, Field(pattern="^[a-z]{1,20}$")]
    what: Annotated[str, Field(max_length=178), AfterValidator(_plain)]

    def __str__(self) -> str:
        """`slurm: slurmd runs`."""
        return f"{self.component}: {self.what}"


Shown = Annotated[Belonging, PlainSerializer(str, return_type=Annotated[str, Field(max_length=200)])]


class CardPlace(Model):
    """Where a PCI card is: its address, NUMA node (None: the firmware assigns none), and the host's port above it."""

    address: Words
    numa: Count | None
    root_port: Words


class Gpu(CardPlace):
    """A GPU by its PCI device id, such as 0x2330, and that of its board ("": not read), which some models differ by."""

    device: Words
    subsystem: Words = ""


class ScannedPort(Model):
    """A network interface of a node. `card` None: no PCI device. Speeds in Mbit/s, None where nobody says.

    `no_cable`: why there is none in an interface with a card.
    """

    interface: Interface
    mac: Words
    link_layer: Literal["ethernet", "infiniband"]
    driver: Words
    operstate: Words
    speed_mbit: Count | None
    fastest_mbit: Count | None
    card: CardPlace | None
    nic_model: Words
    virtual_function: bool
    no_cable: Words = ""
    master: Words
    rdma: RdmaDevice | None
    addresses: tuple[Address, ...]
    managers: tuple[Manager, ...]

    @property
    def rate_gbps(self) -> float | None:
        """What the port can do; of a tool that does not say, what its link does now."""
        mbit = self.fastest_mbit or self.speed_mbit
        return mbit / 1000 if mbit else None


class Answer(Model):
    """A node as the probe found it. `reached_at`: its address at the other end of our connection; `accelerators`: PCI
    ids of those that are not NVIDIA's; `over_ipv4`: it has an IPv4 address."""

    type: Literal["inventory-scan"]
    hostname: Words
    machine_id: Words
    virt: Words
    model: Words
    os: Words
    kernel: Words
    machine: Words = ""
    python: Words
    root: Literal["is", "without password", "with password", "unknown"]
    reached_at: Words
    over_ipv4: bool = True
    network: tuple[Words, ...]
    cpu_model: Words | None
    cpu_sockets: Count | None
    cpu_cores: Count | None
    memory_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    gpu_names: tuple[Words, ...]
    gpus: tuple[Gpu, ...]
    accelerators: tuple[Words, ...] = ()
    ports: Annotated[tuple[ScannedPort, ...], Field(max_length=1000)]
    rdma_devices: tuple[Words, ...]
    belongings: tuple[Shown, ...] = ()

    @property
    def name(self) -> str:
        """The host name without its domain: what a node is called in an inventory."""
        return self.hostname.split(".")[0]

    def port(self, interface: str) -> ScannedPort | None:
        """The port of that name."""
        return next((port for port in self.ports if port.interface == interface), None)


def parse(document: Any) -> Answer | str:
    """The answer, or in words what is wrong with it."""
    try:
        return Answer.model_validate(document)
    except ValidationError as fault:
        path, words = explain(fault)
        return f"{'.'.join(str(part) for part in path)}: {words}"
