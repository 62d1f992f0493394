"""PCI Express links and NUMA nodes of the fabric ports' cards and of the GPUs, from sysfs.

The kernel reads speed and width from the device's and the slot's link registers (Documentation/ABI/testing/
sysfs-bus-pci). Virtual devices have no such registers: their files are missing or say "Unknown".
"""

from __future__ import annotations

import re
from pathlib import Path

from validation.probes.rdma_ports_sysfs import SYSFS, read

GPU_VENDOR = "0x10de"
DISPLAY = "0x03"  # PCI class 3: display controllers, 3D controllers among them
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def function_of(interface: str, sysfs: Path = SYSFS) -> Path | None:
    """The PCI function that carries an interface, None for an interface without one (veth, bridge)."""
    device = (sysfs / "class" / "net" / interface / "device").resolve()
    for folder in (device, *device.parents):
        if ADDRESS.fullmatch(folder.name):
            return folder
    return None


def _link(function: Path, which: str) -> tuple[str, str]:
    """(GT/s per lane, lanes) of a link, each "" where the device does not say."""
    speed = re.match(r"([\d.]+) GT/s", read(function / f"{which}_link_speed"))
    width = read(function / f"{which}_link_width")
    return speed[1] if speed else "", width if width.isdigit() and 0 < int(width) < 255 else ""


def describe(function: Path) -> str:
    """`0000:3b:00.0 speed=8.0 width=16 max_speed=16.0 max_width=16 slot_speed=8.0 slot_width=16 numa=0`."""
    parts = [function.name]
    slot = function.parent if ADDRESS.fullmatch(function.parent.name) else None
    for name, folder, which in (("", function, "current"), ("max_", function, "max"), ("slot_", slot, "max")):
        speed, width = _link(folder, which) if folder is not None else ("", "")
        parts += [f"{name}speed={speed}", f"{name}width={width}"]
    return " ".join([*parts, f"numa={read(function / 'numa_node')}"])


def collect(interfaces: list[str], sysfs: Path = SYSFS) -> list[str]:
    """A line for each fabric port, `nic fab0 ...` or `nic fab0 none`, and for each GPU, `gpu - ...`."""
    lines = []
    for interface in interfaces:
        function = function_of(interface, sysfs)
        lines.append(f"nic {interface} {describe(function) if function else 'none'}")
    for path in sorted((sysfs / "bus" / "pci" / "devices").glob("*")):
        if read(path / "vendor") == GPU_VENDOR and read(path / "class").startswith(DISPLAY):
            lines.append(f"gpu - {describe(path.resolve())}")
    return lines
