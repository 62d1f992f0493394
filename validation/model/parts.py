"""Parts of a server with their serial numbers, as its controller (BMC) or its operating system shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Name

PartKind = Literal["cpu", "dimm", "gpu", "nic", "drive", "psu", "fan"]
Figure = Annotated[float, Field(allow_inf_nan=False)]


class Part(Model):
    """A part. None means that whoever was asked does not say.

    `slot`: as the BMC names it (`DIMM.Socket.A1`), or the kernel (`A1`, `nvme0`, PCI address). `size`: GiB of memory,
    GB of a drive, W of a power supply. `macs`: of a network card, in lower case. `use_percent`: of a GPU, when it was
    read. `limit_w`, `default_limit_w`: its power limit and that of its model.
    """

    kind: PartKind
    slot: Name
    model: str | None = None
    serial: str | None = None
    part_number: str | None = None
    firmware: str | None = None
    health: str | None = None  # as the BMC says: OK, Warning, Critical
    size: Figure | None = None
    macs: tuple[str, ...] = ()
    protocol: str | None = None  # of a drive: NVMe, SAS, SATA; of a node's network port: Ethernet, InfiniBand, other
    controller: str | None = None  # of a drive by the BMC: the storage controller that it is behind
    use_percent: Figure | None = None
    limit_w: Figure | None = None
    default_limit_w: Figure | None = None

    def __str__(self) -> str:
        """`dimm A1 (serial 1234)`."""
        return f"{self.kind} {self.slot}" + (f" (serial {self.serial})" if self.serial else "")


class Unseen(Model):
    """What of its parts a node's own operating system does not show, and why."""

    what: Literal["serial", "dimms", "gpus"]
    why: str

    def __str__(self) -> str:
        """In words."""
        return f"{self.what}: {self.why}"


class HostParts(Model):
    """What a node's own operating system shows of its parts. None: it could not be read, as by a user without root."""

    serial: str | None = None  # of the server, by DMI
    bios_version: str | None = None
    dimms: tuple[Part, ...] | None = None
    gpus: tuple[Part, ...] | None = None
    nics: tuple[Part, ...] | None = None
    drives: tuple[Part, ...] | None = None
    unread: tuple[Unseen, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts that were read."""
        return tuple(part for group in (self.dimms, self.gpus, self.nics, self.drives) for part in group or ())


class Bmc(Model):
    """How a node's controller (BMC) is reached, as the inventory declares it. Never holds a password.

    `ca`: file of the authority that signed its certificate; `fingerprint`: SHA-256 of that certificate, 64 digits in
    lower case. Neither: the authorities that this system trusts. `bios`: attributes as the order wants them, in
    addition to those for GPU nodes, or in their place.
    """

    address: str
    port: Count = 443
    user: str
    ca: str | None = None
    fingerprint: str | None = None
    bios: dict[str, str] = Field(default={})
