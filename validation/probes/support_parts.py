"""Parts of this node by every name that a person may know one by, for `toolkit support`: what is quick comes first.

A GPU that has fallen off the bus is not listed by nvidia-smi, and may keep it from ending: the kernel's own lists are
read before it is asked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validation.probes import host_parts, pcie
from validation.probes.kernel_log import address_of
from validation.probes.rdma_ports_sysfs import SYSFS, find, read
from validation.probes.support_run import run

GPU_QUERY = "index,uuid,serial,pci.bus_id,name,vbios_version"
GPU_TIMEOUT_S = 20.0
_INFORMATION = Path("/proc/driver/nvidia/gpus")


def _slots(sysfs: Path) -> dict[str, str]:
    """PCI address without function -> the slot that the board names."""
    return {read(one / "address"): one.name for one in sorted((sysfs / "bus/pci/slots").glob("*"))}


def _above(address: str, sysfs: Path) -> list[str]:
    """The ports above a PCI function, which report errors of its link."""
    path = (sysfs / "bus/pci/devices" / address).resolve()
    return [folder.name for folder in path.parents if pcie.ADDRESS.fullmatch(folder.name)]


def _placed(address: str, sysfs: Path, slots: dict[str, str]) -> dict[str, Any]:
    return {"pci": address, "above": _above(address, sysfs), "slot": slots.get(address.rpartition(".")[0], "")}


def _of_proc(folder: Path, address: str) -> dict[str, Any]:
    """What NVIDIA's kernel module says of a GPU without being asked through the device."""
    listed = read(folder / address / "information")
    rows = re.findall(r"^([\w ]+):[ \t]*(\S.*)$", listed, re.MULTILINE)
    fields = {name.lower().replace(" ", "_"): value for name, value in rows}
    uuid = str(fields.get("gpu_uuid", ""))
    return {
        "model": host_parts.said(fields.get("model")),
        "uuid": uuid if "?" not in uuid else None,
        "firmware": host_parts.said(re.sub(r"^.*\?.*$", "", str(fields.get("video_bios", "")))),
    }


def kernel_gpus(sysfs: Path = SYSFS, proc: Path = _INFORMATION) -> list[dict[str, Any]]:
    """NVIDIA's GPUs on the PCI bus."""
    slots, found = _slots(sysfs), []
    for function in sorted((sysfs / "bus/pci/devices").glob("*")):
        if read(function / "vendor") == pcie.GPU_VENDOR and read(function / "class").startswith(pcie.DISPLAY):
            found.append({"kind": "gpu", **_placed(function.name, sysfs, slots), **_of_proc(proc, function.name)})
    return found


def listed_gpus(said: str) -> list[dict[str, Any]]:
    """GPUs of `nvidia-smi --query-gpu=GPU_QUERY --format=csv,noheader`; other lines are left out."""
    found = []
    for row in csv.reader(said.splitlines(), skipinitialspace=True):
        if len(row) != len(GPU_QUERY.split(",")) or not row[0].isdecimal():
            continue
        index, uuid, serial, bus, name, vbios = (host_parts.said(field) for field in row)
        found.append(
            {"kind": "gpu", "index": int(index or "0"), "uuid": uuid, "serial": serial, "model": name,
             "firmware": vbios, "pci": address_of(bus or "")}
        )  # fmt: skip
    return found


def ports(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Network ports with a card of their own."""
    slots, found = _slots(sysfs), []
    for one in host_parts.nics(sysfs):
        name, function = one["slot"], pcie.function_of(one["slot"], sysfs)
        device = find(name, sysfs)
        found.append(
            {"kind": "nic", "interface": name, "serial": one["serial"], "firmware": one["firmware"],
             "macs": one["macs"], "rdma": device[0] if device else None,
             **(_placed(function.name, sysfs, slots) if function is not None else {})}
        )  # fmt: skip
    return found


def drives(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Drives, of NVMe with their PCI address."""
    slots, found = _slots(sysfs), []
    for one in host_parts.drives(sysfs):
        address = read(sysfs / "class/nvme" / one["slot"] / "address")
        placed = _placed(address, sysfs, slots) if pcie.ADDRESS.fullmatch(address) else {}
        named = {key: one[key] for key in ("serial", "model", "firmware")}
        found.append({"kind": "drive", "device": one["slot"], **named, **placed})
    return found


def modules(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Memory modules by DMI."""
    found = []
    for one in host_parts.dimms(sysfs) or ():
        model = one["part_number"] or one["model"]
        found.append({"kind": "dimm", "slot": one["slot"], "serial": one["serial"], "model": model})
    return found


def server(sysfs: Path = SYSFS) -> dict[str, Any]:
    """The server itself."""
    dmi = sysfs / "class/dmi/id"
    return {
        "kind": "server",
        "serial": host_parts.said(read(dmi / "product_serial")),
        "model": host_parts.said(read(dmi / "product_name")),
        "firmware": host_parts.said(read(dmi / "bios_version")),
    }


def parts(sysfs: Path = SYSFS) -> Iterator[dict[str, Any]]:
    """All parts. A GPU comes twice, by the kernel and by nvidia-smi: the PCI address is the same."""
    yield server(sysfs)
    yield from modules(sysfs)
    yield from drives(sysfs)
    yield from ports(sysfs)
    yield from kernel_gpus(sysfs)
    asked = ["nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader"]
    kept = run(asked, timeout_s=GPU_TIMEOUT_S)
    yield from listed_gpus(b"".join(kept.pieces()).decode("utf-8", "replace"))
