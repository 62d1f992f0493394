"""Processors and memory of this node, from procfs and sysfs.

In a container these are its host's. A virtual machine shows what its hypervisor lets it see.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import SYSFS, read
from validation.probes.tool import group

PROC = Path("/proc")
GIB = 1 << 30
#: Names of ARM's cores, which have no `model name` in /proc/cpuinfo: by implementer and part, as lscpu has them
#: (util-linux, sys-utils/lscpu-arm.c); of those, the ones of servers and of DPUs.
CORES = {
    "0x41": {
        "0xd03": "Cortex-A53", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72", "0xd09": "Cortex-A73",
        "0xd0a": "Cortex-A75", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1",
        "0xd41": "Cortex-A78", "0xd42": "Cortex-A78AE", "0xd49": "Neoverse-N2", "0xd4a": "Neoverse-E1",
        "0xd4b": "Cortex-A78C", "0xd4f": "Neoverse-V2", "0xd83": "Neoverse-V3AE", "0xd84": "Neoverse-V3",
        "0xd8e": "Neoverse-N3",
    },
    "0x43": {"0x0a1": "ThunderX-88XX", "0x0af": "ThunderX2-99xx", "0x0b8": "ThunderX3-T110"},
    "0x46": {"0x001": "A64FX", "0x003": "MONAKA"},
    "0x48": {"0xd01": "TaiShan-v110", "0xd02": "TaiShan-v120", "0xd06": "TaiShan-v200"},
    "0x4e": {"0x004": "Carmel", "0x010": "Olympus"},
    "0x50": {"0x000": "X-Gene"},
    "0x51": {"0xc00": "Falkor", "0xc01": "Saphira"},
    "0xc0": {"0xac3": "Ampere-1", "0xac4": "Ampere-1a", "0xac5": "Ampere-1b"},
}  # fmt: skip


def collect(sysfs: Path = SYSFS, proc: Path = PROC) -> dict[str, Any]:
    """`cpu_model`, `cpu_sockets`, `cpu_cores` and `memory_gib` as in NodeFacts; None: not known."""
    topologies = sorted((sysfs / "devices/system/cpu").glob("cpu[0-9]*/topology"))
    sockets = {read(each / "physical_package_id") for each in topologies} - {"", "-1"}
    # threads of a core name each other here, so that each core stands there once
    cores = {read(each / "thread_siblings_list") for each in topologies} - {""}
    return {
        "cpu_model": model(read(proc / "cpuinfo")) or None,
        "cpu_sockets": len(sockets) or None,
        "cpu_cores": len(cores) or None,
        "memory_gib": memory_gib(sysfs, proc),
    }


def model(cpuinfo: str) -> str:
    """What /proc/cpuinfo calls the processors; of ARM, which gives numbers alone, the names of the cores.

    A number that is not in the table is said as it is: `ARM implementer 0x41 part 0xd99`.
    """
    for pattern in (r"^model name\s*:\s*(\S.*?)\s*$", r"^Model Name\s*:\s*(\S.*?)\s*$", r"^cpu\s+:\s*(\S.*?)\s*$"):
        if named := group(pattern, cpuinfo):
            return named
    found = []
    for block in re.split(r"\n\s*\n", cpuinfo):
        maker, part = (group(rf"^CPU {key}\s*:\s*(0x[0-9a-fA-F]+)", block) for key in ("implementer", "part"))
        if maker and part:
            numbers = int(maker, 16), int(part, 16)
            named = CORES.get(f"0x{numbers[0]:02x}", {}).get(f"0x{numbers[1]:03x}", "")
            found.append(named or f"ARM implementer 0x{numbers[0]:02x} part 0x{numbers[1]:03x}")
    return ", ".join(sorted(set(found)))


def _numbers(sysfs: Path) -> list[int]:
    folder = sysfs / "devices/system/node"
    return sorted(int(each.name[4:]) for each in folder.glob("node[0-9]*") if each.name[4:].isdigit())


def numa_nodes(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """NUMA nodes of the host as NumaNode, those without processors among them."""
    folder = sysfs / "devices/system/node"
    found = []
    for number in _numbers(sysfs):
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
    """GiB of the server's memory: that of NUMA nodes with processors, for others are a GPU's (as on GH200), or on CXL.

    Of its blocks that are online, else what each node has in total, else MemTotal; these lack what the kernel took for
    itself at boot. Linux, Documentation/admin-guide/mm/memory-hotplug.rst: a block is of `block_size_bytes`, in
    hexadecimal.
    """
    beside = {number for number in _numbers(sysfs) if not _has_processors(sysfs, number)}
    blocks = _blocks(sysfs)
    if blocks is not None:
        size, online = blocks
        mine = sum(not nodes or not nodes <= beside for nodes in online.values())
        if mine and (not beside or all(online.values())):
            return round(mine * size / GIB, 2)
    totals = {number: _node_total(sysfs, number) for number in _numbers(sysfs)}
    if beside and any(totals.values()):
        own = sum(total for number, total in totals.items() if number not in beside)
        return round(own / GIB, 2) if own else None
    if blocks is not None and blocks[1]:
        return round(len(blocks[1]) * blocks[0] / GIB, 2)
    total = group(r"^MemTotal:\s+(\d+) kB$", read(proc / "meminfo"))
    return round(int(total) * 1024 / GIB, 2) if total else None


def memory_beside_gib(sysfs: Path = SYSFS) -> float | None:
    """GiB of memory of NUMA nodes without processors (a GPU's, on CXL, or of high bandwidth); None without any."""
    beside = {number for number in _numbers(sysfs) if not _has_processors(sysfs, number)}
    blocks = _blocks(sysfs)
    found = 0
    if blocks is not None:
        found = blocks[0] * sum(bool(nodes) and nodes <= beside for nodes in blocks[1].values())
    found = found or sum(_node_total(sysfs, number) for number in beside)
    return round(found / GIB, 2) if found else None


def with_processors(sysfs: Path = SYSFS) -> int:
    """How many NUMA nodes have processors."""
    return sum(_has_processors(sysfs, number) for number in _numbers(sysfs))


def _has_processors(sysfs: Path, number: int) -> bool:
    """Of a node that does not say, nobody knows: it is not taken for one without."""
    listed = sysfs / f"devices/system/node/node{number}/cpulist"
    return not listed.exists() or bool(read(listed))


def _node_total(sysfs: Path, number: int) -> int:
    """Bytes of a NUMA node: `Node 1 MemTotal:  100663296 kB`."""
    total = group(r"^Node \d+ MemTotal:\s+(\d+) kB$", read(sysfs / f"devices/system/node/node{number}/meminfo"))
    return int(total) * 1024 if total else 0


def _blocks(sysfs: Path) -> tuple[int, dict[str, set[int]]] | None:
    """Bytes of a block, and of each that is online its NUMA nodes (none where nothing says them); None without blocks.

    A block and its node are linked in both directions.
    """
    folder = sysfs / "devices/system/memory"
    size = read(folder / "block_size_bytes")
    if not size:
        return None
    names = [state.parent.name for state in folder.glob("memory[0-9]*/state") if read(state) == "online"]
    nodes: dict[str, set[int]] = {name: set() for name in names}
    for number in _numbers(sysfs):
        for link in (sysfs / f"devices/system/node/node{number}").glob("memory[0-9]*"):
            if link.name in nodes:
                nodes[link.name].add(number)
    for name in names:
        nodes[name] |= {int(link.name[4:]) for link in (folder / name).glob("node[0-9]*") if link.name[4:].isdigit()}
    return int(size, 16), nodes
