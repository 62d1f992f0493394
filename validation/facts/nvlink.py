"""NVLinks of a node's GPUs, as NVML tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import field_validator

from validation.facts.common import Count, Name, once
from validation.model_base import Model


class NvLink(Model):
    """An NVLink of a GPU: whether it is up, and what is at its other end; "" where the driver does not say."""

    number: Count
    up: bool
    peer: Literal["gpu", "switch", "cpu", ""] = ""
    address: str = ""  # of the peer on the PCI bus


class NvGpu(Model):
    """A GPU and its NVLinks, none of a GPU without NVLink. `emulated`: a device of the lab."""

    address: Name
    links: tuple[NvLink, ...]
    emulated: bool = False

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
