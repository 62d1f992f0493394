"""Facts of the servers' controllers (kind bmc): what each says of its server, and what of it could not be read."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from validation.model.base import Model
from validation.model.facts import Facts, Name, once
from validation.model.parts import Figure, Part, PartKind

#: Sections without which nothing can be said of parts, by their names under `missing`.
OF_PARTS = ("Processors", "Memory", "NetworkAdapters", "EthernetInterfaces", "Storage")


class Server(Model):
    """The server as its BMC describes it. None: not said."""

    maker: str | None = None
    model: str | None = None
    service_tag: str | None = None
    serial: str | None = None
    bios_version: str | None = None
    power_state: str | None = None


class Version(Model):
    """A version of firmware that is installed."""

    name: Name
    version: Name


class Sensor(Model):
    """A sensor and its value, in its own unit."""

    name: Name
    value: Figure
    unit: str = ""
    health: str | None = None


class Event(Model):
    """An entry of the log of hardware events."""

    id: Name
    at: str | None = None
    severity: str | None = None
    message: str = ""

    def __str__(self) -> str:
        """`2026-11-26T10:00:00 Critical: words`."""
        return " ".join(filter(None, (self.at, f"{self.severity or 'no severity'}: {self.message}")))


class Power(Model):
    """Power supplies and fans; what redundancy the supplies have, the limit and the draw in W."""

    parts: tuple[Part, ...] = ()
    redundancy: str | None = None
    redundancy_health: str | None = None
    limit_w: Figure | None = None
    draw_w: Figure | None = None


class Controller(Model):
    """The BMC itself. `ipmi`: IPMI over LAN answers. `port`: Dell's NIC selection, Dedicated or a shared port."""

    model: str | None = None
    firmware: str | None = None
    ipmi: bool | None = None
    port: str | None = None


class Missing(Model):
    """What of a BMC could not be read, and why."""

    what: Name
    why: str

    def __str__(self) -> str:
        """`Memory: its answer is no JSON`."""
        return f"{self.what}: {self.why}"


class BmcNode(Model):
    """What the BMC of a node says. `error`: why nothing could be read, "" else. None: that section was not read.

    `emulated`: the BMC calls itself an emulation of a lab.
    """

    node: Name
    error: str = ""
    seconds: Figure = 0.0
    address: str = ""
    emulated: bool = False
    tls: str = ""
    default_password: bool = False
    server: Server = Server()
    bios: dict[str, str | float | bool | None] | None = None
    bios_pending: tuple[str, ...] | None = None
    parts: tuple[Part, ...] = ()
    firmware: tuple[Version, ...] | None = None
    sensors: tuple[Sensor, ...] | None = None
    events: tuple[Event, ...] | None = None
    power: Power = Power()
    manager: Controller | None = None
    missing: tuple[Missing, ...] = ()

    def of(self, kind: PartKind) -> tuple[Part, ...]:
        """Its parts of a kind."""
        return tuple(part for part in (*self.parts, *self.power.parts) if part.kind == kind)

    def unread(self, *sections: str) -> list[str]:
        """What of these sections could not be read, in words."""
        words = {"Processors": "processor", "Memory": "memory module", "NetworkAdapters": "network card"}
        words |= {"Storage": "drive", "FirmwareInventory": "firmware", "EthernetInterfaces": "network port"}
        names = [*sections, *(words[one] for one in sections if one in words)]
        names += ["storage controller"] if "Storage" in sections else []  # the drives behind it are not listed then
        return [str(one) for one in self.missing if one.what.startswith(tuple(names))]


class BmcFacts(Facts):
    """What the BMCs of a site say."""

    type: Literal["bmc"] = "bmc"
    nodes: tuple[BmcNode, ...]

    @field_validator("nodes")
    @classmethod
    def _once(cls, nodes: tuple[BmcNode, ...]) -> tuple[BmcNode, ...]:
        return once(nodes, "node")

    def node(self, name: str) -> BmcNode | None:
        """What the BMC of a node says; None where it was not asked."""
        return next((one for one in self.nodes if one.node == name), None)
