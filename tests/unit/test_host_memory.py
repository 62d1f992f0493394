"""How much memory a probe may take: of a container what its limit leaves, whatever its host has."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.probes.host_memory import available

GIB = 1 << 30
MEMINFO = f"MemTotal: {64 * GIB >> 10} kB\nMemAvailable:   {60 * GIB >> 10} kB\n"


def machine(root: Path, files: dict[str, object], own: str = "0::/\n") -> int:
    """What is available there."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO)
    (root / "proc/self/cgroup").write_text(own)
    for name, text in files.items():
        (root / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "cgroup" / name).write_text(f"{text}\n")
    return available(root / "proc", root / "cgroup")


@pytest.mark.parametrize(
    ("files", "own", "gib"),
    [
        ({}, "0::/\n", 60),
        ({"memory.max": "max", "memory.current": 5 * GIB}, "0::/\n", 60),
        ({"memory.max": 4 * GIB, "memory.current": GIB}, "0::/\n", 3),
        # files that it has read can be let go of
        ({"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": f"inactive_file {2 * GIB}"}, "0::/\n", 3),
        ({"a/memory.max": 2 * GIB, "a/memory.current": 0, "a/b/memory.max": "max"}, "0::/a/b\n", 2),
        # version 1, which says a large number where there is no limit
        ({"memory/memory.limit_in_bytes": 2 * GIB, "memory/memory.usage_in_bytes": GIB}, "5:memory:/docker/7\n", 1),
        ({"memory/memory.limit_in_bytes": 9223372036854771712, "memory/memory.usage_in_bytes": 1}, "5:memory:/\n", 60),
        ({"memory.max": GIB, "memory.current": 2 * GIB}, "0::/\n", 0),
    ],
)
def test_the_least_of_machine_and_groups_counts(tmp_path: Path, files: dict[str, object], own: str, gib: int) -> None:
    assert machine(tmp_path, files, own) == gib * GIB


def test_this_machine_has_some() -> None:
    assert 0 < available() < 1 << 50
