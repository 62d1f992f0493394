"""Which cores lie beside each GPU, in the numbers that Slurm gives to cores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: How the driver tells the number of /dev/nvidiaN; without the driver, the order on the PCI bus is taken for it.
INFORMATION = r"^/proc/driver/nvidia/gpus/([0-9a-f:.]+)/information$"
CPU = r"/cpu/cpu(\d+)/topology/thread_siblings_list$"
PACKAGE = r"/cpu/cpu(\d+)/topology/physical_package_id$"
NUMA = r"/node/node(\d+)/cpulist$"


def numbers_of(text: str) -> list[int]:
    """Numbers of a kernel list such as '0-3,8'."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


def ranges(numbers: Iterable[int]) -> str:
    """'0-3,8' of numbers."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _read(contents: Mapping[str, str], pattern: str) -> dict[int, str]:
    matches = ((re.search(pattern, path), text) for path, text in contents.items())
    return {int(match[1]): text for match, text in matches if match and text.strip()}


def numa_cores(contents: Mapping[str, str], cpus: int) -> dict[int, str]:
    """NUMA node -> its cores, numbered as gres.conf wants them: socket by socket, then NUMA node, then core.

    That is hwloc's logical order, whatever the kernel calls the processors: Dell's firmware gives even numbers to one
    socket and odd ones to the other. Empty where the node may not use all processors that it shows, as a container.
    """
    siblings = {cpu: numbers_of(text) for cpu, text in _read(contents, CPU).items()}
    packages = _read(contents, PACKAGE)
    numa = {cpu: node for node, text in _read(contents, NUMA).items() for cpu in numbers_of(text)}
    if len(siblings) != cpus or set(siblings) != set(packages) or not set(siblings) <= set(numa):
        return {}
    first: dict[Any, int] = {}  # the first processor of each package, and of each package's part in a NUMA node
    for cpu in sorted(siblings):
        first.setdefault(packages[cpu], cpu)
        first.setdefault((packages[cpu], numa[cpu]), cpu)
    cores = sorted(
        {min(group) for group in siblings.values()}, key=lambda c: (first[packages[c]], first[packages[c], numa[c]], c)
    )
    nodes: dict[int, list[int]] = {}
    for number, core in enumerate(cores):
        nodes.setdefault(numa[core], []).append(number)
    return {node: ranges(members) for node, members in nodes.items()}


def slurm_gpu_cores(contents: Mapping[str, str], gpus: Sequence[Mapping[str, Any]], cpus: int) -> list[str]:
    """Cores beside /dev/nvidia0, /dev/nvidia1 ... as gres.conf takes them; [] where that of any is not known.

    gpus: gpu_list, in the order of the bus; contents, cpus: of a reading of node_state.
    """
    cores = numa_cores(contents, cpus)
    if len(cores) < 2 or not all(gpu["numa_node"] in cores for gpu in gpus):
        return []
    minors: dict[str, int] = {}
    for path, text in contents.items():
        address, minor = re.match(INFORMATION, path), re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if address and minor:
            minors[address[1]] = int(minor[1])
    places = [minors.get(str(gpu["address"]).lower(), number) for number, gpu in enumerate(gpus)]
    if sorted(places) != list(range(len(gpus))):
        return []
    beside = {place: cores[gpu["numa_node"]] for place, gpu in zip(places, gpus)}
    return [beside[place] for place in sorted(beside)]
