"""Parts of this node with their serial numbers, by DMI, PCI, nvidia-smi, ethtool and sysfs; nothing is changed.

Serial numbers of the server and of memory modules can be read by root alone; what cannot be read is listed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from validation.probes import smi
from validation.probes.tool import group, run_tool

SYSFS = Path("/sys")
TIMEOUT_S = 10.0
NOT_SAID = re.compile(
    r"|0+|f+|n/?a|\[?not (available|supported|specified|applicable)\]?|\[n/?a\]|none|unknown|no dimm|default string"
    r"|to be filled by o\.?e\.?m\.?",
    re.IGNORECASE,
)
"""What firmware writes in place of a value that it does not have."""
NO_SERIAL = re.compile(
    r"(system|chassis|base ?board|product)? ?serial ?(number|no\.?)?|s/?n|(\w+_)?sernum(ber)?\d*"
    r"|0?12345678(9|90|9abcdef)?"
    r"|x+|[-._*#?~ ]+|empty|null|nil|invalid|undefined|blank|tbd|no serial.*|no module.*|not present"
    r"|(?P<digit>[1-9])(?P=digit){7,}|\[unknown\]|default|unspecified|to be determined|tbd by o\.?e\.?m\.?|oem",
    re.IGNORECASE,
)
"""What firmware writes in place of a serial number, beside that."""
GPU_QUERY = "pci.bus_id,name,serial,vbios_version,power.limit,power.default_limit,utilization.gpu"
DIMM = 17
"""DMI type of a memory device."""
VPD_SERIAL, VPD_READ_ONLY = b"SN", 0x90
MAC = r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}"
ELSEWHERE = re.compile(r"session\d+|rport-[\d:-]+|usb\d+")
"""In the kernel's path of a disk: of iSCSI, of Fibre Channel, on USB (a stick, or a BMC's virtual media)."""
LAYERS = {"1": "Ethernet", "32": "InfiniBand"}
"""Types of network ports by the kernel's numbers (ARPHRD); addresses of InfiniBand have 20 octets."""


def said(text: str | None) -> str | None:
    """A value of a firmware, None where it is a placeholder."""
    text = " ".join((text or "").split())
    return None if NOT_SAID.fullmatch(text) else text


def serial(text: str | None) -> str | None:
    """A serial number as it is written, leading zeros too; None for a placeholder."""
    found = said(text)
    return None if found is None or NO_SERIAL.fullmatch(found) else found


def _read(path: Path) -> str | None:
    try:
        return said(path.read_text(errors="replace"))
    except OSError:
        return None


def dimm(raw: bytes) -> dict[str, Any] | None:
    """A memory module of a DMI structure of type 17 (SMBIOS 7.18); None where the slot is empty or it is cut."""
    if len(raw) < 0x1B or raw[0] != DIMM or raw[1] < 0x1B or len(raw) < raw[1]:
        return None
    texts = [one.decode("utf-8", "replace") for one in raw[raw[1] :].split(b"\0")]

    def text(at: int) -> str | None:
        number = raw[at]
        return said(texts[number - 1]) if 0 < number <= len(texts) else None

    size = int.from_bytes(raw[0x0C:0x0E], "little")
    if size == 0:
        return None
    mib: int | None = None if size == 0xFFFF else size & 0x7FFF
    if size == 0x7FFF:
        mib = int.from_bytes(raw[0x1C:0x20], "little") if len(raw) >= 0x20 else None
    elif size != 0xFFFF and size & 0x8000:
        mib = 0  # in KiB: less than any module of a server
    return {
        "kind": "dimm",
        "slot": text(0x10) or "unnamed",
        "model": text(0x17),
        "serial": serial(text(0x18)),
        "part_number": text(0x1A),
        "size": mib / 1024 if mib else None,
    }


def dimms(sysfs: Path = SYSFS) -> list[dict[str, Any]] | None:
    """Memory modules by DMI; None where they cannot be read."""
    found = []
    for entry in sorted((sysfs / "firmware/dmi/entries").glob(f"{DIMM}-*")):
        try:
            one = dimm((entry / "raw").read_bytes())
        except OSError:
            return None
        if one is not None:
            found.append(one)
    return found or None


def gpus(text: str) -> list[dict[str, Any]]:
    """GPUs of `nvidia-smi --query-gpu=GPU_QUERY --format=csv,noheader,nounits`."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(GPU_QUERY.split(",")) or not re.fullmatch(r"[0-9A-Fa-f]+:[\dA-Fa-f:.]+", fields[0]):
            continue
        slot, name, number, vbios, limit, default, use = fields
        found.append(
            {
                "kind": "gpu",
                "slot": slot.lower(),
                "model": said(name),
                "serial": serial(number),
                "firmware": said(vbios),
                "limit_w": _number(limit),
                "default_limit_w": _number(default),
                "use_percent": _number(use),
            }
        )
    return found


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) else None


def serial_of_vpd(raw: bytes) -> str | None:
    """The serial number in the read-only part of a card's vital product data (PCI 3.0, appendix I); None without."""
    at = 0
    while at + 3 <= len(raw) and raw[at] & 0x80:
        tag, size = raw[at], int.from_bytes(raw[at + 1 : at + 3], "little")
        body = raw[at + 3 : at + 3 + size]
        at += 3 + size
        if tag != VPD_READ_ONLY:
            continue
        place = 0
        while place + 3 <= len(body):
            key, length = body[place : place + 2], body[place + 2]
            if key == VPD_SERIAL:
                return serial(body[place + 3 : place + 3 + length].decode("ascii", "replace").strip("\0 "))
            place += 3 + length
    return None


def nics(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Network ports with a card of their own, virtual functions and USB left out. InfiniBand has no MAC address here.

    On USB is what a BMC shows to its host (iDRAC's pass-through), which it does not list as a part.
    """
    found = []
    for net in sorted((sysfs / "class/net").glob("*")):
        device = net / "device"
        if not device.exists() or (device / "physfn").exists() or "virtio" in device.resolve().name:
            continue
        if (device / "subsystem").resolve().name == "usb":
            continue
        told = run_tool(["ethtool", "-i", net.name], timeout_s=TIMEOUT_S).stdout
        try:
            number = serial_of_vpd((device / "vpd").read_bytes())
        except OSError:
            number = None
        layer = LAYERS.get(_read(net / "type") or "", "other")
        found.append(
            {
                "kind": "nic",
                "slot": net.name,
                "serial": number,
                "firmware": said(group(r"^firmware-version: (\S.*)$", told)),
                "macs": _macs(net) if layer == "Ethernet" else [],
                "protocol": layer,
            }
        )
    return found


def _macs(net: Path) -> list[str]:
    """The address that an Ethernet port was made with: ethtool's whole value, else the kernel's, else none."""
    permanent = run_tool(["ethtool", "-P", net.name], timeout_s=TIMEOUT_S).stdout
    mac = group(rf"^Permanent address: ({MAC})\s*$", permanent) or _read(net / "address") or ""
    return [mac.lower()] if re.fullmatch(MAC, mac) else []


def _disk_serial(device: Path) -> str | None:
    """Serial number of a SCSI or SATA disk, by its page of vital product data."""
    try:
        raw = (device / "vpd_pg80").read_bytes()
    except OSError:
        return None
    return serial(raw[4 : 4 + int.from_bytes(raw[2:4], "big")].decode("ascii", "replace").strip("\0 "))


def drives(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """NVMe drives and disks of this server that the kernel sees. A RAID controller hides what is behind it."""
    found: list[dict[str, Any]] = []
    for nvme in sorted((sysfs / "class/nvme").glob("nvme*")):
        if (nvme / "transport").exists() and _read(nvme / "transport") != "pcie":
            continue  # over a network, no part of this server
        named = {"model": _read(nvme / "model"), "serial": serial(_read(nvme / "serial"))}
        found.append({"kind": "drive", "slot": nvme.name, **named, "firmware": _read(nvme / "firmware_rev"),
                      "protocol": "NVMe"})  # fmt: skip
    for disk in sorted((sysfs / "block").glob("sd*")):
        if any(map(ELSEWHERE.fullmatch, disk.resolve().parts)):
            continue
        named = {"model": _read(disk / "device/model"), "serial": _disk_serial(disk / "device")}
        found.append({"kind": "drive", "slot": disk.name, **named, "firmware": _read(disk / "device/rev")})
    return found


def collect(container: bool, sysfs: Path = SYSFS) -> dict[str, Any] | None:
    """This node's parts as HostParts; None in a container, where sysfs and DMI show the host's."""
    if container:
        return None
    asked = smi.run(f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits")
    found: dict[str, Any] = {
        "serial": serial(_read(sysfs / "class/dmi/id/product_serial")),
        "bios_version": _read(sysfs / "class/dmi/id/bios_version"),
        "dimms": dimms(sysfs),
        "gpus": gpus(asked.stdout) if asked.returncode == 0 else None,
        "nics": nics(sysfs),
        "drives": drives(sysfs),
    }
    why = {
        "serial": "root alone can read the server's serial number",
        "dimms": "root alone can read DMI, or there is none",
        "gpus": "there is no nvidia-smi, or it does not answer",
    }
    return {**found, "unread": [{"what": key, "why": words} for key, words in why.items() if found[key] is None]}
