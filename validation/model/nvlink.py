"""NVLinks of a node's GPUs and their place in the fabric, as NVML tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator

from validation.model.base import Model
from validation.model.facts import Count, Name, once


class NvLink(Model):
    """An NVLink of a GPU: whether it is up, and what is at its other end; "" where the driver does not say."""

    number: Count
    up: bool
    peer: Literal["gpu", "switch", "cpu", ""] = ""
    address: str = ""  # of the peer on the PCI bus
    rate_mb_s: Annotated[int, Field(gt=0)] | None = None  # 10^6 byte/s, one way; None: down, or the driver does not say


class NvFabric(Model):
    """A GPU's place in the NVLink fabric of its NVSwitches (nvmlGpuFabricInfo). `status`: nvmlReturn_t, 0 is success.

    `clique` and `cluster` (a UUID) are 0 where the fabric ends with the server; `unhealthy`: what NVML's mask tells;
    `unjudged`: what it tells of which nobody knows whether it is meant so.
    """

    state: Name
    status: Count
    clique: Count
    cluster: Name
    unhealthy: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """False of generations that register with no fabric."""
        return self.state != "not supported"

    @property
    def addressed(self) -> bool:
        """Whether it has a clique and a cluster, without which no NVLink leaves the server."""
        return self.clique != 0 and self.cluster.strip("0-") != ""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why it is not usable, in words; none where it is."""
        found = [] if self.state == "completed" else [f"fabric state {self.state}"]
        if self.status:
            found.append(f"fabric status {STATUSES.get(self.status, f'NVML error {self.status}')}")
        return (*found, *(f"fabric health: {words}" for words in self.unhealthy))


STATUSES = {
    3: "Not Supported",
    16: "Reset Required",
    23: "Insufficient Resources",
    27: "Not Ready",
    30: "Invalid State",
    999: "Unknown Error",
}
"""nvmlReturn_t of a GPU's registration, in the driver's words."""


class NvGpu(Model):
    """A GPU and its NVLinks, none of a GPU without NVLink. `emulated`: a device of the lab."""

    address: Name
    links: tuple[NvLink, ...]
    emulated: bool = False
    fabric: NvFabric | None = None  # None: the driver says nothing of a fabric

    @field_validator("links")
    @classmethod
    def _links_once(cls, links: tuple[NvLink, ...]) -> tuple[NvLink, ...]:
        return once(links, "number")

    @property
    def up(self) -> int:
        """How many of its links are up."""
        return sum(link.up for link in self.links)

    @property
    def down(self) -> tuple[int, ...]:
        """Numbers of the links that are not."""
        return tuple(link.number for link in self.links if not link.up)

    @property
    def peers(self) -> Counter[str]:
        """Addresses of the GPUs at the other ends of its links that are up, each with its links; `switch` of all."""
        return Counter("switch" if link.peer == "switch" else link.address for link in self.links if link.up)


def joined(gpus: Iterable[NvGpu]) -> dict[tuple[str, str], int]:
    """Pairs of GPUs that are joined directly -> NVLinks that are up between them, as the first of them says."""
    found = {}
    gpus = tuple(gpus)
    for place, one in enumerate(gpus):
        for other in gpus[place + 1 :]:
            found[one.address, other.address] = one.peers[other.address]
    return found
