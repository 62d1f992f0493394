"""Processors and memory of this node, from procfs and sysfs.

In a container these are its host's. A virtual machine shows what its hypervisor lets it see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import SYSFS, read
from validation.probes.tool import group

PROC = Path("/proc")
GIB = 1 << 30


def collect(sysfs: Path = SYSFS, proc: Path = PROC) -> dict[str, Any]:
    """`cpu_model`, `cpu_sockets`, `cpu_cores` and `memory_gib` as in validation.facts.NodeFacts; None: not known."""
    topologies = sorted((sysfs / "devices/system/cpu").glob("cpu[0-9]*/topology"))
    sockets = {read(each / "physical_package_id") for each in topologies} - {"", "-1"}
    # threads of a core name each other here, so that each core stands there once
    cores = {read(each / "thread_siblings_list") for each in topologies} - {""}
    return {
        "cpu_model": group(r"^model name\s*:\s*(.+?)\s*$", read(proc / "cpuinfo")) or None,
        "cpu_sockets": len(sockets) or None,
        "cpu_cores": len(cores) or None,
        "memory_gib": memory_gib(sysfs, proc),
    }


def numa_nodes(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """NUMA nodes of the host as validation.facts.NumaNode, those without processors among them."""
    folder = sysfs / "devices/system/node"
    numbers = sorted(int(each.name[4:]) for each in folder.glob("node[0-9]*") if each.name[4:].isdigit())
    found = []
    for number in numbers:
        cpus = read(folder / f"node{number}/cpulist")
        first = group(r"^(\d+)", cpus)
        socket = read(sysfs / f"devices/system/cpu/cpu{first}/topology/physical_package_id") if first else ""
        distances = read(folder / f"node{number}/distance").split()
        found.append(
            {
                "number": number,
                "socket": int(socket) if socket.isdigit() else None,
                "cpus": cpus,
                "distances": [int(each) for each in distances if each.isdigit()],
            }
        )
    return found


def memory_gib(sysfs: Path = SYSFS, proc: Path = PROC) -> float | None:
    """GiB of memory: of its blocks that are online, else MemTotal, which lacks what the kernel took for itself at boot.

    Linux, Documentation/admin-guide/mm/memory-hotplug.rst: a block is of `block_size_bytes`, in hexadecimal.
    """
    folder = sysfs / "devices/system/memory"
    size = read(folder / "block_size_bytes")
    online = sum(read(state) == "online" for state in folder.glob("memory[0-9]*/state"))
    if size and online:
        return round(online * int(size, 16) / GIB, 2)
    total = group(r"^MemTotal:\s+(\d+) kB$", read(proc / "meminfo"))
    return round(int(total) * 1024 / GIB, 2) if total else None
