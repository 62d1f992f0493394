"""Where this node's fabric ports are plugged in, as the switches themselves report it by LLDP, and their optics.

Three programs may have listened: lldpd, systemd-networkd, NetworkManager (the last two switched on by role fabric). All
that run are asked. Of a bond or a VLAN the physical ports below are looked at.

`stdout`: the facts again as JSON, with what the tools `printed`. `facts`: as CablingFacts.
"""

from __future__ import annotations

import json
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, run_tool

SYSFS = Path("/sys")
NETWORKD = Path("/run/systemd/netif/lldp")
TIMEOUT_S = 15.0
_MOST_BYTES = 1 << 20
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_POWER = re.compile(
    r"^\s*(?P<what>Laser output power|Transmit avg optical power|Tx power|"
    r"Receiver signal average optical power|Rcvr signal avg optical power|Rx power)"
    r"(?P<lane>[^:]*):\s*\S+ mW / (?P<dbm>-?[\d.]+|-inf) dBm$",
    re.MULTILINE,
)
_LIMIT = re.compile(
    r"^\s*Laser (?P<what>tx|rx|output) power (?P<end>low|high) alarm threshold\s*:\s*\S+ mW / (?P<dbm>-?[\d.]+) dBm$",
    re.MULTILINE,
)
_FIELD = re.compile(r"^\s*(Vendor name|Vendor PN|Vendor SN)\s*:\s*(.*?)\s*$", re.MULTILINE)
_HEAT = re.compile(r"^\s*Module temperature\s*:\s*(-?[\d.]+) degrees C", re.MULTILINE)


@dataclass
class Asked:
    """What is asked of this probe."""

    interfaces: list[str]  # fabric ports
    virtual: bool = False  # has no optics to look at


def physical(interface: str, sysfs: Path = SYSFS) -> list[str]:
    """The ports that an interface is made of: itself, or what is below a bond or a VLAN."""
    lower = sorted(path.name[len("lower_") :] for path in (sysfs / "class/net" / interface).glob("lower_*"))
    return [name for one in lower for name in physical(one, sysfs)] or [interface]


def frames(raw: bytes) -> list[bytes]:
    """The frames in a file of systemd-networkd: each after its length in eight bytes."""
    found, at = [], 0
    while at + 8 <= len(raw):
        (size,) = struct.unpack_from("<Q", raw, at)
        if size > len(raw) - at - 8:
            break
        found.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return found


def neighbour(frame: bytes) -> dict[str, Any] | None:
    """What a frame says of the port that sent it (IEEE 802.1AB); None where it is no LLDP frame."""
    if frame[12:14] != b"\x88\xcc":
        return None
    found: dict[str, Any] = {"switch": "", "chassis": "", "port": "", "description": "", "age_s": None}
    at = 14
    while at + 2 <= len(frame):
        (head,) = struct.unpack_from(">H", frame, at)
        kind, size = head >> 9, head & 0x1FF
        value = frame[at + 2 : at + 2 + size]
        at += 2 + size
        if kind == 0 or len(value) < size:
            break
        if kind == 1 and size > 1:
            found["chassis"] = _id(value, 4)
        elif kind == 2 and size > 1:
            found["port"] = _id(value, 3)
        elif kind in (4, 5):
            found["description" if kind == 4 else "switch"] = _text(value)
    return found if found["port"] else None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip().rstrip("\x00")


def _id(value: bytes, mac: int) -> str:
    return value[1:].hex(":") if value[0] == mac and len(value) == 7 else _text(value[1:])


def _runs(program: str) -> bool:
    """Whether a process has that name, of which the kernel keeps 15 characters."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if path.read_text().strip() == program[:15]:
                return True
    return False


def of_networkd(interfaces: list[str], sysfs: Path, folder: Path, said: list[str]) -> tuple[dict[str, Any], str]:
    """interface -> neighbours by systemd-networkd, and why it cannot be asked."""
    if folder.is_dir():
        if not _runs("systemd-networkd"):
            return {}, "systemd-networkd does not run"  # what it heard before is kept there until the next boot
        found: dict[str, Any] = {}
        for name in interfaces:
            with suppress(OSError):
                index = (sysfs / "class/net" / name / "ifindex").read_text().strip()
                raw = (folder / index).read_bytes()[:_MOST_BYTES]
                found[name] = [one for one in map(neighbour, frames(raw)) if one]
        return found, ""
    ran = run_tool(["networkctl", "lldp", "--json=short", "--no-pager"], timeout_s=TIMEOUT_S)
    said.append("$ networkctl lldp --json=short\n" + ran.stdout + ran.stderr)
    try:
        listed = json.loads(ran.stdout)["Neighbors"]
        return {
            one["InterfaceName"]: [
                {
                    "switch": peer.get("SystemName") or "",
                    "chassis": peer.get("ChassisID") or "",
                    "port": peer.get("PortID") or "",
                    "description": peer.get("PortDescription") or "",
                    "age_s": None,
                }
                for peer in one.get("Neighbors", [])
            ]
            for one in listed
        }, ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, "systemd-networkd keeps no neighbours here"


def of_lldpd(said: list[str]) -> tuple[dict[str, Any], str]:
    """interface -> neighbours by lldpd, and why it cannot be asked."""
    ran = run_tool(["lldpcli", "-f", "json0", "show", "neighbors"], timeout_s=TIMEOUT_S)
    said.append("$ lldpcli -f json0 show neighbors\n" + ran.stdout + ran.stderr)
    if ran.returncode != 0:
        return {}, "lldpd is not installed" if ran.returncode == 127 else ran.failure or ""
    try:
        found: dict[str, Any] = {}
        for part in json.loads(ran.stdout)["lldp"]:
            for one in part.get("interface", []):
                if one.get("via", "LLDP") != "LLDP":
                    continue
                chassis, port = one["chassis"][0], one["port"][0]
                found.setdefault(one["name"], []).append(
                    {
                        "switch": _first(chassis, "name"),
                        "chassis": _first(chassis, "id"),
                        "port": _first(port, "id"),
                        "description": _first(port, "descr"),
                        "age_s": _age(str(one.get("age", ""))),
                    }
                )
        return found, ""
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as fault:
        return {}, f"lldpcli printed something else ({type(fault).__name__})"


def _first(part: Any, key: str) -> str:
    values = part.get(key) or [{}]
    return str(values[0].get("value", ""))


def _age(words: str) -> int | None:
    """Seconds of `1 day, 02:03:04`."""
    found = re.fullmatch(r"(\d+) days?, (\d+):(\d\d):(\d\d)", words)
    if found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def of_network_manager(said: list[str]) -> tuple[dict[str, Any], str]:
    """interface -> neighbours by NetworkManager, and why it cannot be asked."""
    command = ["nmcli", "-t", "-e", "no", "-m", "multiline", "-f", "all", "device", "lldp", "list"]
    ran = run_tool(command, timeout_s=TIMEOUT_S)
    said.append("$ " + " ".join(command) + "\n" + ran.stdout + ran.stderr)
    if ran.returncode != 0:
        return {}, "NetworkManager is not installed" if ran.returncode == 127 else ran.failure or ""
    found: dict[str, Any] = {}
    peer: dict[str, Any] = {}
    keys = {"SYSTEM-NAME": "switch", "CHASSIS-ID": "chassis", "PORT-ID": "port", "PORT-DESCRIPTION": "description"}
    for line in ran.stdout.splitlines():
        name, _, value = line.partition(":")
        name = name.partition(".")[2] or name
        if name == "DEVICE":
            peer = {"switch": "", "chassis": "", "port": "", "description": "", "age_s": None}
            found.setdefault(value, []).append(peer)
        elif name in keys and peer:
            peer[keys[name]] = "" if value == "--" else value
    return found, ""


def optic(printed: str) -> dict[str, Any] | None:
    """A transceiver by `ethtool -m`; None where nothing of one was printed."""
    about = dict(_FIELD.findall(printed))
    power: dict[str, list[float]] = {"tx": [], "rx": []}
    for found in _POWER.finditer(printed):
        side = "rx" if found["what"].startswith("R") else "tx"
        power[side].append(-99.0 if found["dbm"] == "-inf" else float(found["dbm"]))
    limits = {
        f"{'rx' if found['what'] == 'rx' else 'tx'}_{found['end']}_dbm": float(found["dbm"])
        for found in _LIMIT.finditer(printed)
    }
    heat = _HEAT.search(printed)
    if not about and not power["rx"]:
        return None
    return {
        "vendor": about.get("Vendor name", ""),
        "part": about.get("Vendor PN", ""),
        "serial": about.get("Vendor SN", ""),
        "temperature_c": float(heat[1]) if heat else None,
        "tx_dbm": power["tx"],
        "rx_dbm": power["rx"],
        "limits": limits,
    }


def probe(args: Asked) -> ProbeDoc:
    """Ask everything that listens on this node."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        said: list[str] = []
        below = {name: physical(name) for name in args.interfaces}
        every = [name for names in below.values() for name in names]
        heard = {
            "lldpd": of_lldpd(said),
            "systemd-networkd": of_networkd(every, SYSFS, NETWORKD, said),
            "NetworkManager": of_network_manager(said),
        }
        ports: list[dict[str, Any]] = []
        for of, names in below.items():
            for name in names:
                if any(port["interface"] == name for port in ports):
                    continue  # below several VLANs
                ran = Ran([], 127, "", "") if args.virtual else run_tool(["ethtool", "-m", name], timeout_s=TIMEOUT_S)
                if ran.command:
                    said.append(f"$ ethtool -m {name}\n{ran.stdout}{ran.stderr}")
                peers = [{"by": by, **one} for by, (found, _) in heard.items() for one in found.get(name, [])]
                ports.append({"interface": name, "of": of, "heard": peers, "optic": optic(ran.stdout)})
        listeners = {by: why for by, (_, why) in heard.items()}
        facts: dict[str, Any] = {"type": "cabling", "ports": ports, "listeners": listeners}
        text = json.dumps({**facts, "printed": said}, indent=1)
        return Ran(["cabling", *args.interfaces], 0, text, ""), facts, None

    return document("cabling", "probes", measure, lambda ran: "")
