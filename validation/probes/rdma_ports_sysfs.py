"""RDMA ports as the kernel shows them under /sys/class/infiniband: which device carries an interface, and its state.

A device is found by the interface behind its GIDs, never by its name. InfiniBand GIDs have no interface: there the
IPoIB interface names its device, and its port by dev_port (Linux, Documentation/ABI/testing/sysfs-class-net).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SYSFS = Path("/sys")
REPRESENTOR = re.compile(r"(c\d+)?pf\d+(hpf|(vf|sf)r?\d+)?|(c\d+)?(vf|sf)r?\d+")


def read(path: Path) -> str:
    """Text of a small file without its newline, "" where it is missing or refuses (an empty GID slot does)."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def interfaces(device: Path) -> set[str]:
    """Network interfaces of an RDMA device: those behind its GIDs, and those of the same card.

    Soft-RoCE names its one interface itself; its table of 1024 GIDs would take a second on an emulated machine.
    """
    parent = read(device / "parent")
    if parent:
        return {parent}
    names = {p.name for p in (device / "device" / "net").glob("*")}
    return (names | {read(p) for p in device.glob("ports/*/gid_attrs/ndevs/*")}) - {""}


def represented(interface: str, sysfs: Path = SYSFS) -> str:
    """What an interface represents in the adapter's own switch, as the driver names it; "" of any other.

    `pf0vf3`: a virtual function; `pf0sf88`: a scalable one; `pf0`, `pf0hpf`: a host's port seen from a DPU; `c1` in
    front for another controller (Linux, Documentation/networking/devlink/devlink-port.rst). The cable's own is `p0`.
    """
    name = read(sysfs / "class" / "net" / interface / "phys_port_name")
    return name if REPRESENTOR.fullmatch(name) else ""


def find(interface: str, sysfs: Path = SYSFS) -> tuple[str, int] | None:
    """(device, port) that carry an interface; None without one."""
    devices = sysfs / "class" / "infiniband"
    for parent in sorted(devices.glob("*/parent")):  # Soft-RoCE: also while the port is down and has no GIDs
        if read(parent) == interface:
            return parent.parent.name, 1
    for ndev in sorted(devices.glob("*/ports/*/gid_attrs/ndevs/*")):
        if read(ndev) == interface:
            return ndev.parents[4].name, int(ndev.parents[2].name)
    net = sysfs / "class" / "net" / interface
    if represented(interface, sysfs):  # its PCI function, and so the RDMA device of that, is the port's
        return None
    for device in sorted((net / "device" / "infiniband").glob("*")):
        number = read(net / "dev_port")
        port = int(number) + 1 if number.isdigit() else 1
        if (devices / device.name / "ports" / str(port)).is_dir():
            return device.name, port
    return None


def gids(folder: Path) -> list[dict[str, Any]]:
    """The GID table of a port; empty slots left out. InfiniBand has no interface."""
    found = []
    for path in sorted((folder / "gids").glob("*"), key=lambda p: int(p.name)):
        gid = read(path)
        if not gid.replace(":", "").strip("0"):
            continue
        kind = read(folder / "gid_attrs" / "types" / path.name)
        if kind:
            interface = read(folder / "gid_attrs" / "ndevs" / path.name)
            found.append({"index": int(path.name), "type": kind, "gid": gid, "interface": interface})
    return found


def counters(folder: Path) -> dict[str, int]:
    """All counters of a port, those of the InfiniBand specification and the driver's own (`hw_counters`)."""
    found = {}
    for path in sorted([*(folder / "counters").glob("*"), *(folder / "hw_counters").glob("*")]):
        text = read(path)
        if path.name != "lifespan" and re.fullmatch(r"\d+", text):
            found[path.name] = int(text)
    return found


def state(interface: str, sysfs: Path = SYSFS) -> dict[str, Any]:
    """What the kernel says of the RDMA port behind an interface. `device` "" where there is none.

    `state` and `physical_state` without their numbers (`ACTIVE`, `LinkUp`), rate in 10^9 bit/s.
    """
    net = sysfs / "class" / "net" / interface
    mtu = read(net / "mtu")
    found: dict[str, Any] = {
        "interface": interface,
        "present": net.exists(),
        "operstate": read(net / "operstate"),
        "mtu": int(mtu) if mtu.isdigit() else None,
        "device": "",
    }
    where = find(interface, sysfs)
    if where is None:
        return found
    device = sysfs / "class" / "infiniband" / where[0]
    folder = device / "ports" / str(where[1])
    rate = re.match(r"([\d.]+) Gb/sec(?: \((.*)\))?", read(folder / "rate"))
    driver = device / "device" / "driver"
    return {
        **found,
        "device": where[0],
        "port": where[1],
        "state": read(folder / "state").partition(":")[2].strip(),
        "physical_state": read(folder / "phys_state").partition(":")[2].strip(),
        "link_layer": read(folder / "link_layer"),
        "rate_gbps": float(rate[1]) if rate else None,
        "rate_words": rate[2] or "" if rate else "",
        "gids": gids(folder),
        "counters": counters(folder),
        "firmware": read(device / "fw_ver"),
        "board": read(device / "board_id"),
        "driver": driver.resolve().name if driver.exists() else "",
    }


def short(interface: str, sysfs: Path = SYSFS) -> dict[str, Any] | None:
    """Device, port, link layer and state of an interface's RDMA port, None without one: for the facts of a node."""
    found = state(interface, sysfs)
    return {key: found[key] for key in ("device", "port", "link_layer", "state")} if found["device"] else None
