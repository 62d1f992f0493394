"""What a site is made of, as it was found: each server's service tag, its parts with serial numbers, what is unread."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Name

ListedKind = Literal["gpu", "nic", "drive", "dimm", "psu"]
KINDS: tuple[ListedKind, ...] = ("gpu", "nic", "drive", "dimm", "psu")
"""What is listed, in this order. Of processors and fans no serial number is known to be given."""
NOUNS: dict[ListedKind, str] = {
    "gpu": "GPU", "nic": "network card", "drive": "drive", "dimm": "memory module", "psu": "power supply",
}  # fmt: skip
MANY: dict[ListedKind, str] = {kind: f"{noun}s" for kind, noun in NOUNS.items()} | {"psu": "power supplies"}
Reader = Literal["bmc", "node"]
"""Who lists a part: the server's BMC, or the node's own operating system with NVML."""
PLACES_OF_NODE: frozenset[ListedKind] = frozenset({"gpu", "dimm"})
"""Of these the node's own name of a place stays (a PCI address, a socket); `nvme0` and `eth0` are another's at will."""


_MOST = 8
"""How many places of one serial number are named in words: a maker may have written one into all of a site."""


class ListedPart(Model):
    """A part. None: not read. `slot`: the BMC's name of its place; `node_slot`: the node's own; `by`: who lists it."""

    kind: ListedKind
    slot: Name | None = None
    node_slot: Name | None = None
    model: str | None = None
    serial: str | None = Field(default=None, description="null: not read, or the part gives a placeholder such as N/A")
    part_number: str | None = None
    firmware: str | None = None
    macs: tuple[str, ...] = ()
    by: tuple[Reader, ...]

    @property
    def place(self) -> str:
        """How its place is called: by the BMC if it names it."""
        return self.slot or self.node_slot or "unnamed"

    @property
    def places(self) -> frozenset[tuple[Reader, str]]:
        """Its place by the names that stay."""
        found: list[tuple[Reader, str]] = [("bmc", self.slot)] if self.slot else []
        if self.node_slot and self.kind in PLACES_OF_NODE:
            found.append(("node", self.node_slot))
        return frozenset(found)

    @property
    def keys(self) -> tuple[str, ...]:
        """What it is known again by, the better first: serial number, MAC addresses; without regard to case."""
        mine = [f"serial {self.serial.casefold()}"] if self.serial else []
        return (*mine, *(f"mac {mac}" for mac in self.macs))


class KindRead(Model):
    """Who listed all parts of a kind in a server; `why`: what was not read, one reason each."""

    kind: ListedKind
    by: tuple[Reader, ...]
    why: tuple[str, ...] = ()


class ServerParts(Model):
    """A server. `service_tag` None: not read. `emulated`: its BMC is a lab's emulation, its parts are constructed.
    `driver`: the version of the NVIDIA driver that is loaded, or else installed; None where there is none.
    """

    node: Name
    model: str | None = None
    service_tag: str | None = None
    emulated: bool = False
    driver: str | None = None
    parts: tuple[ListedPart, ...] = ()
    read: Annotated[tuple[KindRead, ...], Field(description="one of each kind")]

    def of(self, kind: ListedKind) -> tuple[ListedPart, ...]:
        """Its parts of a kind."""
        return tuple(part for part in self.parts if part.kind == kind)

    def reading(self, kind: ListedKind) -> KindRead:
        """Who listed the parts of a kind."""
        return next((one for one in self.read if one.kind == kind), KindRead(kind=kind, by=()))


class Doubled(Model):
    """Parts of one kind with the same serial number. `where`: node and place of each."""

    kind: ListedKind
    serial: str
    where: tuple[str, ...]

    def __str__(self) -> str:
        """In words."""
        named, more = ", ".join(self.where[:_MOST]), len(self.where) - _MOST
        said = f"{len(self.where)} {MANY[self.kind]} have serial number {self.serial}: {named}"
        return f"{said}, and {more} more" if more > 0 else said


def doubled(servers: tuple[ServerParts, ...]) -> tuple[Doubled, ...]:
    """Serial numbers that more than one part of a kind has, over all servers."""
    found: dict[tuple[ListedKind, str], list[tuple[str, str]]] = {}
    for server in servers:
        for part in server.parts:
            if part.serial:
                place = (part.serial, f"{server.node} {part.place}")
                found.setdefault((part.kind, part.serial.casefold()), []).append(place)
    return tuple(
        Doubled(kind=kind, serial=places[0][0], where=tuple(where for _, where in places))
        for (kind, _), places in found.items() if len(places) > 1
    )  # fmt: skip
