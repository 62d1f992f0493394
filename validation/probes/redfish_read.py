"""What a BMC says of its server, by Redfish, as one plain document: parts, firmware, BIOS, sensors, events, power.

Every section is read by itself. What cannot be read, or is not what Redfish says it is, is listed under `missing` with
its place and why; the others go on. iDRAC 9 has `Power` and `Thermal`, iDRAC 10 `PowerSubsystem` and
`ThermalSubsystem`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from validation.probes import redfish_parts
from validation.probes.redfish import ROOT, Refused, Session, Unread
from validation.probes.redfish_parts import (
    MAC,
    SECRET,
    Doc,
    link,
    listed,
    number,
    part_of,
    text,
)

MOST_MEMBERS = 2000
"""Of one collection; an event log of iDRAC has up to 1024 entries."""
MOST_PAGES = 50
SECTIONS_AT_ONCE = 3
"""Sections of one BMC that are read at the same time. Project default."""


class Reading:
    """One reading of one BMC: its session, and what was missing."""

    def __init__(self, session: Session) -> None:
        """Nothing is read yet."""
        self._session = session
        self._expand = False
        self.missing: list[dict[str, str]] = []
        self.speeds: list[Doc] = []  # of fans

    def miss(self, what: str, why: str) -> None:
        """Something was not read."""
        self.missing.append({"what": what, "why": why})

    def section(self, what: str, read: Callable[[], Any], otherwise: Any) -> Any:
        """What `read` finds; `otherwise`, and a line under `missing`, where it cannot be read."""
        try:
            return read()
        except Unread as fault:
            self.miss(what, str(fault))
        except Refused as fault:
            self.miss(what, str(fault))
        return otherwise

    def get(self, path: str) -> Doc:
        """A resource."""
        return self._session.get(path)

    def members(self, path: str, what: str) -> list[Doc]:
        """The members of a collection, whole; one that cannot be read is listed under `missing`."""
        found: list[Doc] = []
        page: str | None = path + ("?$expand=*($levels=1)" if self._expand else "")
        for _ in range(MOST_PAGES):
            if page is None or len(found) >= MOST_MEMBERS:
                break
            doc = self.get(page)
            entries = listed(doc, "Members")
            bare = [one["@odata.id"] for one in entries if set(one) == {"@odata.id"}]
            whole = [one for one in entries if set(one) != {"@odata.id"}]
            if not all(isinstance(one, str) for one in bare):
                raise Unread("Members has a link that is no text")
            for at, one in zip(bare, self._session.get_all(bare)):
                if isinstance(one, Unread):
                    self.miss(f"{what} {at.rpartition('/')[2]}", str(one))
                else:
                    whole.append(one)
            found += whole
            after = doc.get("Members@odata.nextLink")
            page = after if isinstance(after, str) and after != page else None
        return found

    def each(self, path: str, what: str, make: Callable[[Doc], Doc | None]) -> list[Doc]:
        """What `make` finds in each member; a member that is not what it should be is listed under `missing`."""
        found = []
        for one in self.members(path, what):
            name = str(one.get("Id", "?"))[:60]
            made = self.section(f"{what} {name}", partial(make, one), None)
            if made is not None:
                found.append(made)
        return found

    def first(self, path: str) -> Doc:
        """The first member of a collection, whole."""
        entries = listed(self.get(path), "Members")
        if not entries:
            raise Unread("it has no member")
        return self.get(link({"first": entries[0]}, "first"))

    def _service(self) -> tuple[Doc, Doc]:
        """Its root and its server; Refused where not even the service answers as Redfish."""
        try:
            root = self.get(ROOT)
            if not isinstance(root.get("RedfishVersion"), str):
                raise Unread("it has no RedfishVersion")
            expand = part_of(root, "ProtocolFeaturesSupported", "ExpandQuery")
            self._expand = expand.get("Levels") is True and expand.get("ExpandAll") is True
            return root, self.first(link(root, "Systems"))
        except Unread as fault:
            raise Refused(f"it answers, but not as Redfish: {fault}") from None

    def figures(self) -> Doc:
        """What changes while a server runs, to be asked again and again; Refused as by `all`."""
        root, system = self._service()
        chassis = self.section("Chassis", lambda: self.first(link(root, "Chassis")), {})
        return {
            "health": self.section("health", lambda: redfish_parts.rollup(system), None),
            "power": self._power(chassis),
            "temperatures": self.section("temperatures", lambda: self._temperatures(chassis), []),
            "fans": self.speeds,
            "missing": self.missing,
        }

    def _temperatures(self, chassis: Doc) -> list[Doc]:
        """Temperatures and what their maker calls critical, by the new resources or the old one."""
        if "Sensors" in chassis:
            found = self.each(link(chassis, "Sensors"), "sensor", redfish_parts.temperature)
            if found or "Thermal" not in chassis:
                return found
        old = listed(self.get(link(chassis, "Thermal")), "Temperatures")
        return [made for one in old if (made := redfish_parts.old_temperature(one)) is not None]

    def all(self) -> Doc:
        """Everything; Refused where not even the service answers as Redfish."""
        root, system = self._service()
        chassis = self.section("Chassis", lambda: self.first(link(root, "Chassis")), {})
        manager = self.section("Managers", lambda: self.first(link(root, "Managers")), {})
        made = part_of(root, "Oem", "ElasticAI") if isinstance(root.get("Oem"), dict) else {}
        sections: dict[str, Callable[[], Any]] = {
            "server": lambda: self.section("Systems", lambda: redfish_parts.server(system), {}),
            "bios": lambda: self.section("Bios", lambda: self._bios(system), None),
            "bios_pending": lambda: self.section("Bios/Settings", lambda: self._pending(system, manager), None),
            "cards": lambda: self._cards(system),
            "nics": lambda: self._nics(system, chassis),
            "drives": lambda: self._drives(system),
            "firmware": lambda: self.section("FirmwareInventory", lambda: self._firmware(root), None),
            "sensors": lambda: self.section("Sensors", lambda: self._sensors(chassis), None),
            "events": lambda: self.section("event log", lambda: self._events(system, manager), None),
            "power": lambda: self._power(chassis),
            "manager": lambda: self.section("Managers", lambda: self._manager(manager), None),
        }
        with ThreadPoolExecutor(SECTIONS_AT_ONCE, thread_name_prefix="redfish") as pool:
            found = dict(zip(sections, pool.map(lambda read: read(), sections.values())))
        parts = [part for name in ("cards", "nics", "drives") for part in found.pop(name)]
        return {
            **found,
            "parts": parts,
            "emulated": made.get("Emulated") is True,
            "tls": self._session.tls,
            "missing": sorted(self.missing, key=lambda one: (one["what"], one["why"])),
        }

    def power_states(self) -> dict[str, str]:
        """Whether the server is on, and the health of its power supplies: little, to be asked again and again.

        Refused or Unread where it does not say.
        """
        root = self.get(ROOT)
        system, chassis = self.first(link(root, "Systems")), self.first(link(root, "Chassis"))
        power = self._power(chassis)
        found = {"power": text(system, "PowerState"), "redundancy": power["redundancy_health"]}
        for part in power["parts"]:
            if part["kind"] == "psu":
                found[f"power supply {part['slot']}"] = part["health"]
        return {what: value for what, value in found.items() if value}

    def _bios(self, system: Doc) -> dict[str, str | float | bool | None]:
        found = part_of(self.get(link(system, "Bios")), "Attributes")
        return {
            name: value[:400] if isinstance(value, str) else value
            for name, value in sorted(found.items())
            if not SECRET.search(name) and (value is None or isinstance(value, (str, int, float, bool)))
        }

    def _pending(self, system: Doc, manager: Doc) -> list[str]:
        """Attributes whose change waits for a reboot, and jobs that are about to change them."""
        bios = self.get(link(system, "Bios"))
        try:
            waits = part_of(self.get(link(bios, "@Redfish.Settings", "SettingsObject")), "Attributes")
        except Unread as fault:
            if not fault.absent:
                raise
            waits = {}
        now = part_of(bios, "Attributes")
        found = [f"{name} to {value}" for name, value in sorted(waits.items())
                 if not SECRET.search(name) and now.get(name) != value]  # fmt: skip
        jobs = part_of(manager, "Links", "Oem", "Dell", "Jobs") or part_of(manager, "Oem", "Dell", "Jobs")
        for job in self.members(link(jobs), "job") if jobs.get("@odata.id") else ():
            if text(job, "JobType") == "BIOSConfiguration" and text(job, "JobState") in ("Scheduled", "Running", "New"):
                found.append(f"job {text(job, 'Id')}")
        return found

    def _cards(self, system: Doc) -> list[Doc]:
        """Processors, GPUs and memory modules."""
        return [
            *self.section("Processors", lambda: self._processors(link(system, "Processors")), []),
            *self.section("Memory", lambda: self.each(link(system, "Memory"), "memory module", redfish_parts.dimm), []),
        ]

    def _processors(self, path: str) -> list[Doc]:
        """Processors and GPUs, of these how busy they are where the BMC says it."""
        metrics: dict[str, str] = {}

        def make(doc: Doc) -> Doc | None:
            made = redfish_parts.processor(doc)
            if made is not None and made["kind"] == "gpu" and "Metrics" in doc:
                metrics[made["slot"]] = link(doc, "Metrics")
            return made

        found = self.each(path, "processor", make)
        for slot, said in zip(metrics, self._session.get_all(list(metrics.values()))):
            if isinstance(said, Unread):
                self.miss(f"use of {slot}", str(said))
                continue
            use = self.section(f"use of {slot}", partial(number, said, "BandwidthPercent"), None)
            next(one for one in found if one["slot"] == slot)["use_percent"] = use
        return found

    def _nics(self, system: Doc, chassis: Doc) -> list[Doc]:
        def read() -> list[Doc]:
            ports = self.section(
                "EthernetInterfaces", lambda: self.members(link(system, "EthernetInterfaces"), "network port"), []
            )
            found = self.each(link(chassis, "NetworkAdapters"), "network card", redfish_parts.nic)
            for card in found:
                mine = (p for p in ports if re.match(rf"{re.escape(card['slot'])}(-|$)", str(p.get("Id", ""))))
                macs = (str(p.get("PermanentMACAddress") or p.get("MACAddress") or "").lower() for p in mine)
                card["macs"] = sorted({mac for mac in macs if MAC.fullmatch(mac)})
            return found

        return list(self.section("NetworkAdapters", read, []))

    def _drives(self, system: Doc) -> list[Doc]:
        def read() -> list[Doc]:
            paths: dict[str, str] = {}  # of a drive -> its controller
            for controller in self.members(link(system, "Storage"), "storage controller"):
                name = redfish_parts.slot_of(controller)
                paths |= {link({"drive": one}, "drive"): name for one in listed(controller, "Drives")}
            found = []
            for at, one in zip(paths, self._session.get_all(list(paths))):
                name = f"drive {at.rpartition('/')[2]}"
                if isinstance(one, Unread):
                    self.miss(name, str(one))
                    continue
                made = self.section(name, partial(redfish_parts.drive, one), None)
                found += [{**made, "controller": paths[at]}] if made is not None else []
            return found

        return list(self.section("Storage", read, []))

    def _firmware(self, root: Doc) -> list[Doc]:
        service = self.get(link(root, "UpdateService"))
        found = self.each(link(service, "FirmwareInventory"), "firmware", redfish_parts.version_of)
        installed = [one for one in found if one["id"].startswith("Installed-")]  # Dell lists former ones too
        return [{"name": one["name"], "version": one["version"]} for one in installed or found]

    def _sensors(self, chassis: Doc) -> list[Doc]:
        return self.each(link(chassis, "Sensors"), "sensor", redfish_parts.sensor)

    def _events(self, system: Doc, manager: Doc) -> list[Doc]:
        """The log of hardware events (SEL)."""
        for owner in (manager, system):
            if "LogServices" not in owner:
                continue
            for log in self.members(link(owner, "LogServices"), "log"):
                if str(log.get("Id", "")).lower() in ("sel", "log", "eventlog", "systemeventlog"):
                    return self.each(link(log, "Entries"), "event", redfish_parts.event)
        raise Unread("it has no log of hardware events", absent=True)

    def _power(self, chassis: Doc) -> Doc:
        """Power supplies, fans, redundancy, limit and draw, by the new resources or the old ones."""
        power: Doc = {"parts": [], "redundancy": None, "redundancy_health": None, "limit_w": None, "draw_w": None}

        def new() -> None:
            subsystem = self.get(link(chassis, "PowerSubsystem"))
            power["parts"] += self.each(link(subsystem, "PowerSupplies"), "power supply", redfish_parts.psu)
            redfish_parts.redundancy(power, listed(subsystem, "PowerSupplyRedundancy"), "RedundancyType")
            whole = self.get(link(chassis, "EnvironmentMetrics"))
            limit = part_of(whole, "PowerLimitWatts")
            if text(limit, "ControlMode") not in (None, "Disabled"):
                power["limit_w"] = number(limit, "SetPoint")
            power["draw_w"] = number(part_of(whole, "PowerWatts"), "Reading")

        def old() -> None:
            whole = self.get(link(chassis, "Power"))
            power["parts"] += [
                made for one in listed(whole, "PowerSupplies") if (made := redfish_parts.psu(one)) is not None
            ]
            redfish_parts.redundancy(power, listed(whole, "Redundancy"), "Mode")
            for one in listed(whole, "PowerControl")[:1]:
                power["limit_w"] = number(part_of(one, "PowerLimit"), "LimitInWatts")
                power["draw_w"] = number(one, "PowerConsumedWatts")

        def fan(doc: Doc) -> Doc | None:
            with suppress(Unread):  # an odd speed costs no fan
                self.speeds += redfish_parts.speeds(doc)
            return redfish_parts.fan(doc)

        def fans() -> None:
            if "ThermalSubsystem" in chassis:
                subsystem = self.get(link(chassis, "ThermalSubsystem"))
                power["parts"] += self.each(link(subsystem, "Fans"), "fan", fan)
            else:
                whole = self.get(link(chassis, "Thermal"))
                power["parts"] += [made for one in listed(whole, "Fans") if (made := fan(one)) is not None]

        self.section("power", new if "PowerSubsystem" in chassis else old, None)
        self.section("fans", fans, None)
        return power

    def _manager(self, manager: Doc) -> Doc:
        protocols = self.get(link(manager, "NetworkProtocol"))
        found = {
            "model": text(manager, "Model"),
            "firmware": text(manager, "FirmwareVersion"),
            "ipmi": part_of(protocols, "IPMI").get("ProtocolEnabled"),
            "port": None,
        }
        if found["ipmi"] is not None and not isinstance(found["ipmi"], bool):
            raise Unread("IPMI.ProtocolEnabled is neither true nor false")
        identity = manager.get("@odata.id")
        if text(manager, "Manufacturer") in (None, "Dell Inc.") and isinstance(identity, str) and "iDRAC" in identity:
            path = f"{identity}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"
            attributes = self.section("DellAttributes", lambda: part_of(self.get(path), "Attributes"), {})
            found["port"] = text(attributes, "CurrentNIC.1.Selection") or text(attributes, "NIC.1.Selection")
        return found
