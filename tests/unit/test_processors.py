"""Processors and memory as procfs and sysfs tell them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validation.probes import processors

SILVER = "Intel(R) Xeon(R) Silver 4116 CPU @ 2.10GHz"


def write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """Two sockets of two cores with two threads each, and three blocks of 2 GiB of which one is offline."""
    sysfs, proc = tmp_path / "sys", tmp_path / "proc"
    cpus, memory = sysfs / "devices/system/cpu", sysfs / "devices/system/memory"
    write({proc / "cpuinfo": f"processor\t: 0\nmodel name\t: {SILVER}\ncpu MHz\t\t: 800.0\n"})
    write({proc / "meminfo": "MemTotal:       4026531 kB\nMemFree:        100 kB"})
    for cpu in range(8):
        core = cpu % 4
        write({cpus / f"cpu{cpu}/topology/physical_package_id": str(core // 2)})
        write({cpus / f"cpu{cpu}/topology/core_id": str(core % 2)})  # counts anew in each socket
        write({cpus / f"cpu{cpu}/topology/thread_siblings_list": f"{core},{core + 4}"})
    write({memory / "block_size_bytes": "80000000"})
    for block, state in enumerate(("online", "online", "offline")):
        write({memory / f"memory{block}/state": state})
    return sysfs, proc


def test_cores_are_counted_once_and_in_all_sockets(machine: tuple[Path, Path]) -> None:
    assert processors.collect(*machine) == {
        "cpu_model": SILVER,
        "cpu_sockets": 2,
        "cpu_cores": 4,
        "memory_gib": 4.0,
    }


def test_without_blocks_memory_is_what_the_kernel_has_in_total(machine: tuple[Path, Path]) -> None:
    (machine[0] / "devices/system/memory/block_size_bytes").unlink()
    assert processors.memory_gib(*machine) == 3.84


def test_what_is_not_told_is_not_known(tmp_path: Path) -> None:
    assert set(processors.collect(tmp_path, tmp_path).values()) == {None}


def test_this_machine_has_as_many_cores_as_it_can_have() -> None:

    found = processors.collect()
    assert found["cpu_cores"] is None or 1 <= found["cpu_cores"] <= (os.cpu_count() or 1)
    assert found["memory_gib"] is None or found["memory_gib"] > 0.1


GRACE = "processor\t: {}\nBogoMIPS\t: 2000.00\nCPU implementer\t: {}\nCPU variant\t: 0x0\nCPU part\t: {}\n"
GIB_KB = 1 << 20


def plant(
    root: Path, nodes: dict[int, tuple[str, int]], block_gib: int = 32, links: str = "both", blocks: bool = True
) -> Path:
    """Nodes as (processors, GiB), with their blocks, linked from the node, from the block, or both."""
    number = 0
    for node, (cpus, gib) in nodes.items():
        folder = root / f"devices/system/node/node{node}"
        write({folder / "cpulist": cpus, folder / "distance": "10"})
        write({folder / "meminfo": f"Node {node} MemTotal:  {gib * GIB_KB} kB\nNode {node} MemFree:  1 kB"})
        for _ in range(gib // block_gib if blocks else 0):
            block = root / f"devices/system/memory/memory{number}"
            write({block / "state": "online"})
            if links in ("both", "node"):
                (folder / block.name).symlink_to(block)
            if links in ("both", "block"):
                (block / folder.name).symlink_to(folder)
            number += 1
    if blocks:
        write({root / "devices/system/memory/block_size_bytes": f"{block_gib << 30:x}"})
    return root


GH200 = {0: ("0-3", 480), 1: ("", 96), **{number: ("", 0) for number in range(2, 9)}}


@pytest.mark.parametrize("links", ["both", "node", "block", "none"])
@pytest.mark.parametrize("blocks", [True, False])
def test_memory_of_a_gpu_is_not_the_servers(tmp_path: Path, links: str, blocks: bool) -> None:
    sysfs = plant(tmp_path / "sys", GH200, links=links, blocks=blocks)
    write(
        {
            tmp_path / "proc/cpuinfo": GRACE.format(0, "0x41", "0xd4f"),
            tmp_path / "proc/meminfo": "MemTotal: 600000000 kB",
        }
    )
    found = processors.collect(sysfs, tmp_path / "proc")
    assert (found["cpu_model"], found["memory_gib"]) == ("Neoverse-V2", 480)
    assert processors.with_processors(sysfs) == 1
    assert processors.memory_beside_gib(sysfs) == 96
    assert [node["number"] for node in processors.numa_nodes(sysfs) if node["cpus"]] == [0]


@pytest.mark.parametrize(
    ("nodes", "own", "beside"),
    [
        ({0: ("0-71", 480), 1: ("72-143", 480), 2: ("", 192), 10: ("", 192)}, 960, 384),  # GB200
        ({0: ("0-31", 256), 1: ("32-63", 256), 2: ("", 128)}, 512, 128),  # CXL behind a host bridge of its own
        ({0: ("0-31", 64), 1: ("", 64)}, 64, 64),  # memory of high bandwidth, flat
        ({0: ("0-31", 256), 1: ("32-63", 256)}, 512, None),
        ({0: ("", 0), 8: ("0-31", 256)}, 256, None),  # a first node without anything
    ],
)
def test_memory_is_of_nodes_with_processors(
    tmp_path: Path, nodes: dict[int, tuple[str, int]], own: float, beside: float | None
) -> None:
    sysfs = plant(tmp_path, nodes)
    assert (processors.memory_gib(sysfs, tmp_path), processors.memory_beside_gib(sysfs)) == (own, beside)


def test_a_block_that_two_nodes_share_counts_once(tmp_path: Path) -> None:
    sysfs = plant(tmp_path, {0: ("0-3", 4), 1: ("4-7", 4), 2: ("", 2)}, block_gib=2)
    first = sysfs / "devices/system/memory/memory1"
    (first / "node1").symlink_to(sysfs / "devices/system/node/node1")
    assert processors.memory_gib(sysfs, tmp_path) == 8


@pytest.mark.parametrize("state", ["offline", "going-offline"])
def test_what_was_taken_out_is_no_memory(tmp_path: Path, state: str) -> None:
    sysfs = plant(tmp_path, {0: ("0-3", 8)}, block_gib=2)
    write({sysfs / "devices/system/memory/memory3/state": state})
    assert processors.memory_gib(sysfs, tmp_path) == 6


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GRACE.format(0, "0x41", "0xd4f") + "\n" + GRACE.format(1, "0x41", "0xd4f"), "Neoverse-V2"),
        (GRACE.format(0, "0xc0", "0xac3"), "Ampere-1"),
        (GRACE.format(0, "0x41", "0xd0c"), "Neoverse-N1"),
        (GRACE.format(0, "0x4e", "0x010"), "Olympus"),
        (GRACE.format(0, "0x41", "0xd42"), "Cortex-A78AE"),
        (GRACE.format(0, "0x41", "0xd99"), "ARM implementer 0x41 part 0xd99"),
        (GRACE.format(0, "0x41", "0xd03") + "\n" + GRACE.format(1, "0x41", "0xd08"), "Cortex-A53, Cortex-A72"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("system type : x\n\nprocessor\t: 0\nModel Name\t: Loongson-3C5000\n", "Loongson-3C5000"),
        (f"processor\t: 0\nmodel\t\t: 85\nmodel name\t: {SILVER}\n", SILVER),
        ("processor\t: 0\nBogoMIPS\t: 2000.00\n", ""),
    ],
)
def test_processors_have_a_name_on_every_machine(text: str, name: str) -> None:
    assert processors.model(text) == name
