"""PCI Express links and NUMA nodes of the fabric ports' cards and of the GPUs, from sysfs.

The kernel reads speed and width from the device's and the slot's link registers (Documentation/ABI/testing/
sysfs-bus-pci). Virtual devices have no such registers: their files are missing or say "Unknown".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import SYSFS, read

GPU_VENDOR = "0x10de"
DISPLAY = "0x03"  # PCI class 3: display controllers, 3D controllers among them
OTHER_BRIDGE = "0x0680"  # PCI class 6.80, of NVIDIA: an NVSwitch
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def function_of(interface: str, sysfs: Path = SYSFS) -> Path | None:
    """The PCI function that carries an interface, None for an interface without one (veth, bridge)."""
    device = (sysfs / "class" / "net" / interface / "device").resolve()
    for folder in (device, *device.parents):
        if ADDRESS.fullmatch(folder.name):
            return folder
    return None


def _link(function: Path, which: str) -> dict[str, Any]:
    """GT/s per lane and lanes of a link, each None where the device does not say."""
    speed = re.match(r"(\d+(?:\.\d+)?) GT/s", read(function / f"{which}_link_speed"))
    width = read(function / f"{which}_link_width")
    return {
        "gt_s": float(speed[1]) if speed and float(speed[1]) > 0 else None,
        "lanes": int(width) if width.isdigit() and 0 < int(width) < 255 else None,
    }


def _end(function: Path) -> dict[str, Any]:
    """A PCI function as the lower end of its link."""
    return {"address": function.name, "link": _link(function, "current"), "card": _link(function, "max")}


def describe(function: Path) -> dict[str, Any]:
    """A PCI function as validation.facts.PciCard: its link, the ports above it, its NUMA node.

    The path of a function in sysfs is its way up: `pci0000:16/0000:16:00.0/...` begins with the bridge of the host and
    its root port.
    """
    numa = read(function / "numa_node")
    above = [folder for folder in reversed(function.parents) if ADDRESS.fullmatch(folder.name)]
    top = (above[0] if above else function).parent.name
    return {
        **_end(function),
        "numa": int(numa) if numa.isdigit() else None,  # -1: none assigned
        "above": [_end(port) for port in above],
        "host_bridge": top[3:] if re.fullmatch(r"pci[0-9a-f]{4,}:[0-9a-f]{2}", top) else "",
    }


def root_port(card: dict[str, Any]) -> str:
    """Address of the host's port above a card, "" where there is none."""
    return str(card["above"][0]["address"]) if card["above"] else ""


def nvswitches(sysfs: Path = SYSFS) -> list[str]:
    """Addresses of the NVSwitches that are PCI functions: those of A100 and H100 boards; later ones are none."""
    every = sorted((sysfs / "bus" / "pci" / "devices").glob("*"))
    return [p.name for p in every if read(p / "vendor") == GPU_VENDOR and read(p / "class").startswith(OTHER_BRIDGE)]


def collect(interfaces: list[str], sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """A card for each fabric port, without an address where it has no PCI device, and for each GPU."""
    cards = []
    for interface in interfaces:
        function = function_of(interface, sysfs)
        cards.append({"what": "nic", "interface": interface, **(describe(function) if function else {})})
    for path in sorted((sysfs / "bus" / "pci" / "devices").glob("*")):
        if read(path / "vendor") == GPU_VENDOR and read(path / "class").startswith(DISPLAY):
            cards.append({"what": "gpu", **describe(path.resolve())})
    return cards
