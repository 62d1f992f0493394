"""Parts, versions, sensors and events out of single resources of Redfish, as plain objects; nothing is read here.

A value of another type than Redfish gives it is an error of that one resource, and never taken for another value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from validation.probes.host_parts import said, serial
from validation.probes.redfish import Unread

SECRET = re.compile(r"passw|secret|token|key", re.IGNORECASE)
"""Attributes of a BIOS that are left out: of passwords they say at least whether there is one."""
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
Doc = dict[str, Any]


def text(doc: Mapping[str, Any], key: str) -> str | None:
    """A text of a resource, None where it is null, missing or a placeholder; Unread where it is no text."""
    value = doc.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unread(f"{key} is {str(value)[:40]!r}, no text")
    return said(value[:400])


def number(doc: Mapping[str, Any], key: str) -> float | None:
    """A number of a resource, None where it is null or missing; Unread where it is no finite number."""
    value = doc.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unread(f"{key} is {str(value)[:40]!r}, no number")
    return float(value)


def part_of(doc: Mapping[str, Any], *keys: str) -> Doc:
    """An object within a resource, {} where it or one above it is missing; Unread where it is something else."""
    found: Any = doc
    for key in keys:
        found = found.get(key)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise Unread(f"{key} is {str(found)[:40]!r}, no object")
    return dict(found)


def listed(doc: Mapping[str, Any], key: str) -> list[Doc]:
    """The objects of a list within a resource; Unread where it is none."""
    found = doc.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise Unread(f"{key} is no list of objects")
    return found


def link(doc: Mapping[str, Any], *keys: str) -> str:
    """The path that an object of a resource points to; Unread (absent) where there is none."""
    found = part_of(doc, *keys).get("@odata.id")
    if not isinstance(found, str):
        raise Unread(f"it has no {'.'.join(keys)}", absent=True)
    return found


def health(doc: Mapping[str, Any]) -> str | None:
    """What it says of its own health."""
    return text(part_of(doc, "Status"), "Health")


def there(doc: Mapping[str, Any]) -> bool:
    """Whether a place for a part has one: an empty one is listed as absent."""
    return text(part_of(doc, "Status"), "State") != "Absent"


def server(doc: Doc) -> Doc:
    """The server itself: maker, model, service tag, BIOS version, whether it is on."""
    return {
        "maker": text(doc, "Manufacturer"),
        "model": text(doc, "Model"),
        "service_tag": text(doc, "SKU") or text(doc, "SerialNumber"),
        "serial": text(doc, "SerialNumber"),
        "bios_version": text(doc, "BiosVersion"),
        "power_state": text(doc, "PowerState"),
    }


def slot_of(doc: Doc) -> str:
    """How a BMC names a place."""
    return text(doc, "Id") or text(doc, "MemberId") or text(doc, "Name") or "unnamed"


def _part(kind: str, doc: Doc, **more: Any) -> Doc:
    return {
        "kind": kind,
        "slot": slot_of(doc),
        "model": text(doc, "Model"),
        "serial": serial(text(doc, "SerialNumber")),
        "part_number": text(doc, "PartNumber"),
        "health": health(doc),
        **more,
    }


def processor(doc: Doc) -> Doc | None:
    """A processor or GPU; None for another accelerator, or an empty socket."""
    kind = {"CPU": "cpu", "GPU": "gpu"}.get(text(doc, "ProcessorType") or "")
    if kind is None or not there(doc):
        return None
    return _part(kind, doc, firmware=text(doc, "FirmwareVersion"))


def dimm(doc: Doc) -> Doc | None:
    """A memory module; None where the slot is empty."""
    mib = number(doc, "CapacityMiB")
    return _part("dimm", doc, size=mib / 1024 if mib else None) if there(doc) and mib != 0 else None


def nic(doc: Doc) -> Doc | None:
    """A network card; None where the slot is empty."""
    controllers = listed(doc, "Controllers")
    firmware = text(controllers[0], "FirmwarePackageVersion") if controllers else None
    return _part("nic", doc, firmware=firmware) if there(doc) else None


def drive(doc: Doc) -> Doc | None:
    """A drive; None where the bay is empty."""
    size = number(doc, "CapacityBytes")
    protocol = text(doc, "Protocol")
    return (
        _part("drive", doc, firmware=text(doc, "Revision"), size=size / 1e9 if size else None, protocol=protocol)
        if there(doc)
        else None
    )


def psu(doc: Doc) -> Doc | None:
    """A power supply; one that is absent or off has that as its health."""
    watts = number(doc, "PowerCapacityWatts")
    state = text(part_of(doc, "Status"), "State")
    fault = None if state in (None, "Enabled", "StandbyOffline") else state
    made = _part("psu", doc, firmware=text(doc, "FirmwareVersion"), size=watts)
    return {**made, "health": fault if fault and made["health"] in (None, "OK") else made["health"]}


def fan(doc: Doc) -> Doc | None:
    """A fan; None where there is none."""
    return (
        {**_part("fan", doc), "slot": text(doc, "Name") or text(doc, "FanName") or slot_of(doc)} if there(doc) else None
    )


def speeds(doc: Doc) -> list[Doc]:
    """How fast a fan turns: a minute (`rpm`), or as a `ratio` of what it can; as far as it says."""
    share = part_of(doc, "SpeedPercent")
    said = [("ratio", number(share, "Reading"), 100), ("rpm", number(share, "SpeedRPM"), 1)]
    old = {"RPM": ("rpm", 1), "Percent": ("ratio", 100)}.get(text(doc, "ReadingUnits") or "RPM")
    if old is not None:
        said.append((old[0], number(doc, "Reading"), old[1]))
    made = fan(doc)
    return [
        {"name": made["slot"], "kind": kind, "value": value / whole}
        for kind, value, whole in said
        if made is not None and value is not None
    ]


def redundancy(power: Doc, groups: Iterable[Doc], key: str) -> None:
    """What the groups of power supplies are, into `power`."""
    for group in groups:
        power["redundancy"] = text(group, key)
        power["redundancy_health"] = health(group)


def version_of(doc: Doc) -> Doc | None:
    """A version of firmware; None where it has no name or none."""
    name, version = text(doc, "Name"), text(doc, "Version")
    return {"id": text(doc, "Id") or "", "name": name, "version": version} if name and version else None


def sensor(doc: Doc) -> Doc | None:
    """A sensor; None where it shows no value."""
    value = number(doc, "Reading")
    if value is None:
        return None
    return {"name": text(doc, "Name") or slot_of(doc), "value": value, "unit": text(doc, "ReadingUnits") or "",
            "health": health(doc)}  # fmt: skip


def rollup(doc: Mapping[str, Any]) -> str | None:
    """What a server says of the health of itself and all its parts."""
    return text(part_of(doc, "Status"), "HealthRollup") or health(doc)


def temperature(doc: Doc) -> Doc | None:
    """A sensor of a temperature; None for another one, and where it shows no value."""
    value = number(doc, "Reading")
    if value is None or text(doc, "ReadingUnits") not in ("Cel", "C"):
        return None
    critical = number(part_of(doc, "Thresholds", "UpperCritical"), "Reading")
    return {"name": text(doc, "Name") or slot_of(doc), "value": value, "critical": critical}


def old_temperature(doc: Doc) -> Doc | None:
    """The same of the resource that was before."""
    value = number(doc, "ReadingCelsius")
    if value is None or not there(doc):
        return None
    return {
        "name": text(doc, "Name") or slot_of(doc),
        "value": value,
        "critical": number(doc, "UpperThresholdCritical"),
    }


def event(doc: Doc) -> Doc:
    """An entry of the event log."""
    return {
        "id": slot_of(doc),
        "at": text(doc, "Created"),
        "severity": text(doc, "Severity"),
        "message": text(doc, "Message") or text(doc, "MessageId") or "",
    }
