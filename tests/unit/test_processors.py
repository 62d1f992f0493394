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
