"""PCI Express links and NUMA nodes of the fabric ports' cards and of the GPUs, from sysfs.

The kernel reads speed and width from the device's and the slot's link registers (Documentation/ABI/testing/
sysfs-bus-pci). Virtual devices have no such registers: their files are missing or say "Unknown".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from validation.probes import acs
from validation.probes.rdma_ports_sysfs import SYSFS, read

GPU_VENDOR = "0x10de"
DISPLAY = "0x03"  # PCI class 3: display controllers, 3D controllers among them
OTHER_BRIDGE = "0x0680"  # PCI class 6.80, of NVIDIA: an NVSwitch
LINK_TYPES = {"1": "Ethernet", "32": "InfiniBand"}  # ARPHRD_* of linux/if_arp.h
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def carrier(interface: str, sysfs: Path = SYSFS) -> str:
    """The interface with a card of its own behind a fabric port: a VLAN's parent, the first member of a bond."""
    net = sysfs / "class" / "net" / interface
    below = sorted(path.name for path in net.glob("lower_*")) if not (net / "device").exists() else []
    return carrier(below[0][len("lower_") :], sysfs) if below else interface


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
    """A PCI function as PciCard: its link, the ports above it, its NUMA node.

    The path of a function in sysfs is its way up: `pci0000:16/0000:16:00.0/...` begins with the bridge of the host and
    its root port.
    """
    numa = read(function / "numa_node")
    above = [folder for folder in reversed(function.parents) if ADDRESS.fullmatch(folder.name)]
    top = (above[0] if above else function).parent.name
    return {
        **_end(function),
        "numa": int(numa) if numa.isdigit() else None,  # -1: none assigned
        "above": [{**_end(port), "acs": acs.of_port(port)} for port in above],
        "iommu": acs.iommu(function),
        "host_bridge": top[3:] if re.fullmatch(r"pci[0-9a-f]{4,}:[0-9a-f]{2}", top) else "",
    }


def read_request(function: Path) -> int | None:
    """Bytes of the largest read request that a function may send (MaxReadReq), None where it cannot be read.

    Bits 14:12 of Device Control in the PCI Express capability (PCI Express base specification, 7.5.3.4). Only root
    reads more than the first 64 bytes of configuration space.
    """
    try:
        space = (function / "config").read_bytes()
    except OSError:
        return None
    if len(space) <= 64 or not space[0x06] & 0x10:  # no list of capabilities
        return None
    at = space[0x34] & 0xFC
    for _ in range(48):  # as many as fit: a damaged list may go round
        if at < 0x40 or at + 10 > len(space):
            return None
        if space[at] == 0x10:
            code = space[at + 9] >> 4 & 0x7
            return 128 << code if code <= 5 else None
        at = space[at + 1] & 0xFC
    return None


def adapter(interface: str, function: Path, sysfs: Path = SYSFS) -> dict[str, Any]:
    """What has to be the same on all adapters of a model; the model is that of the board, as its maker sells it."""
    ids = [read(function / name) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    versions = sorted({read(path) for path in (function / "infiniband").glob("*/fw_ver")} - {""})
    return {
        "board": " ".join(ids).strip(),
        "firmware": ", ".join(versions),
        "link_layer": LINK_TYPES.get(read(sysfs / "class" / "net" / interface / "type"), ""),
        "read_request_bytes": read_request(function),
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
        function = function_of(carrier(interface, sysfs), sysfs)
        told = {**describe(function), **adapter(interface, function, sysfs)} if function else {}
        cards.append({"what": "nic", "interface": interface, **told})
    for path in sorted((sysfs / "bus" / "pci" / "devices").glob("*")):
        if (path / "physfn").exists():  # a part of a GPU, which its host gives to a virtual machine
            continue
        if read(path / "vendor") == GPU_VENDOR and read(path / "class").startswith(DISPLAY):
            cards.append({"what": "gpu", **describe(path.resolve())})
    return cards
