"""How the cards of a node are plugged in: PCI Express links, the ports above each card, and NUMA nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Name, Positive

Distance = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
"""How far two cards are apart, from near to far, in the words of `nvidia-smi topo`: across one PCI Express switch;
across several; through a bridge of the host; between bridges of the host in one NUMA node; between NUMA nodes.
"""
DISTANCES: tuple[Distance, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")


class PciLink(Model):
    """A PCI Express link, or what an end of it could do. None where the device does not say."""

    gt_s: Positive | None = None  # per lane
    lanes: Annotated[int, Field(gt=0)] | None = None

    @property
    def whole(self) -> bool:
        """Both speed and width are known."""
        return self.gt_s is not None and self.lanes is not None

    def __str__(self) -> str:
        """`8 GT/s x16`."""
        return f"{_or(self.gt_s)} GT/s x{_or(self.lanes)}"


def _or(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _below(value: float | None, rated: float | None) -> bool:
    return value is not None and rated is not None and value < rated


def _least(one: float | None, other: float | None) -> float | None:
    return min(one, other) if one is not None and other is not None else one


class _End(Model):
    """The lower end of a link: what the link is trained to (`link`) and what this end could do (`card`)."""

    address: str = ""
    link: PciLink = PciLink()
    card: PciLink = PciLink()

    def rated_below(self, port: PciLink) -> PciLink:
        """The lesser of this end and the port above it: neither can do more. This end alone where the port is mute."""
        lanes = _least(self.card.lanes, port.lanes)
        return PciLink(gt_s=_least(self.card.gt_s, port.gt_s), lanes=None if lanes is None else int(lanes))


class Acs(Model):
    """Access Control Services of a port: whether it has them, and its control register: what of them is on."""

    capable: bool
    control: Annotated[int, Field(ge=0, le=0xFFFF)]

    @property
    def words(self) -> str:
        """The bits that are on, as lspci names them."""
        return ", ".join(name for bit, name in enumerate(ACS_BITS) if self.control >> bit & 1)


ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
"""Bits of the ACS control register, from the lowest (PCI Express base specification), in the words of `lspci -vvv`."""


class PciPort(_End):
    """A port above a card: the host's, or of a switch, whose upper ports are the lower ends of links themselves."""

    address: Name
    acs: Acs | None = None  # None: its configuration space was not shown


class PciCard(_End):
    """A GPU or the card of a fabric port: its link, what it could do, the ports above it, and its NUMA node.

    `address` is "" for a port without a PCI device, `numa` None where the firmware assigns none. `above` begins with
    the host's port, behind whose one link all cards below it stand, and ends with the slot: of a switch it has the
    upper port and the lower one. `host_bridge`: the bridge of the host that they hang on, as the kernel names its bus.
    """

    what: Literal["nic", "gpu"]
    interface: str = ""
    numa: Count | None = None
    above: tuple[PciPort, ...] = ()
    host_bridge: str = ""
    # of a port's card: identifiers of the board, firmware, kind of the port, and MaxReadReq
    board: str = ""
    firmware: str = ""
    link_layer: str = ""
    read_request_bytes: Annotated[int, Field(ge=128, le=4096)] | None = None
    iommu: str = ""  # identity (passed through), DMA, DMA-FQ, none; "": not known

    @property
    def name(self) -> str:
        """`fab0 (0000:3b:00.0)` or `GPU 0000:18:00.0`."""
        return f"GPU {self.address}" if self.what == "gpu" else f"{self.interface} ({self.address or 'no PCI device'})"

    @property
    def root_port(self) -> str:
        """Address of the host's port above it, "" where there is none."""
        return self.above[0].address if self.above else ""

    @property
    def slot(self) -> PciLink:
        """What the port that it is plugged into could do."""
        return self.above[-1].card if self.above else PciLink()

    @property
    def rated(self) -> PciLink:
        """The lesser of card and slot: neither end can do more."""
        return self.rated_below(self.slot)

    @property
    def uplinks(self) -> tuple[Uplink, ...]:
        """The links of the switches above it, from the host's port on."""
        pairs = zip(self.above[::2], self.above[1::2], strict=False)
        return tuple(Uplink(end=end, rated=end.rated_below(port.card)) for port, end in pairs)

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

    def distance(self, other: PciCard) -> Distance | None:
        """How far the other card is away; None where neither the ports above them nor their NUMA nodes tell."""
        if not self.address or not other.address:
            return None
        shared = 0
        for mine, its in zip(self.above, other.above, strict=False):
            if mine.address != its.address:
                break
            shared += 1
        if shared:  # they part at a switch, or are functions of one card
            return "PIX" if max(len(self.above), len(other.above)) - shared <= 1 else "PXB"
        if self.host_bridge and self.host_bridge == other.host_bridge:
            return "PHB"
        if self.numa is None or other.numa is None:
            return None
        return "NODE" if self.numa == other.numa else "SYS"

    def __str__(self) -> str:
        """What the link is trained to, and what it could be."""
        return f"{self.name}: {self.link}, rated {self.rated}"


class Uplink(Model):
    """The link of a switch to the port above it: the switch's upper port, and the lesser of both ends."""

    end: PciPort
    rated: PciLink

    @property
    def short(self) -> bool:
        """Fewer lanes or less speed than rated: a switch has no reason to lower it."""
        link = self.end.link
        return _below(link.lanes, self.rated.lanes) or _below(link.gt_s, self.rated.gt_s)

    @property
    def whole(self) -> bool:
        """All of it is known."""
        return self.end.link.whole and self.rated.whole

    def __str__(self) -> str:
        """As of a card."""
        return f"switch {self.end.address}: {self.end.link}, rated {self.rated}"


class NumaNode(Model):
    """A NUMA node of the host: its socket, its processors (as the kernel lists them), and how far each node is.

    `distances` are those of the firmware's table to the nodes of the host in their order, 10 for itself.
    """

    number: Count
    socket: Count | None = None  # physical package of its processors
    cpus: str = ""
    distances: tuple[Count, ...] = ()
