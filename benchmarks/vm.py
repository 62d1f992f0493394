"""How long a lab with two virtual machines takes: up with empty caches, up from the cache, down.

    .venv/bin/python benchmarks/vm.py [--cold]

`--cold` also times a lab with empty caches (downloads and builds everything again, elsewhere than the real caches).
Prints one JSON document; `load` is the machine's load average before and after, for a figure of an emulated machine
means little without it. Needs root; makes and removes a lab called `benchvm`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from spine import timed

CPU_FIELDS = slice(11, 13)  # utime and stime in /proc/PID/stat after the command's name, proc(5)


def qemu_cpu_s(lab: str) -> list[float]:
    """CPU seconds that each machine of a lab has used so far: what booting costs, whatever else the host does."""
    used = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().split(b"\0")
            if words[0].startswith(b"qemu-system") and f"eai-{lab}-".encode() in words[2]:
                fields = (proc / "stat").read_text().rpartition(")")[2].split()
                used.append(sum(int(f) for f in fields[CPU_FIELDS]) / os.sysconf("SC_CLK_TCK"))
        except (OSError, IndexError):
            continue  # ended meanwhile
    return used


def main() -> None:
    """Run everything and print the figures."""
    figures: dict[str, float | str | list[float]] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:  # not a tmpfs: node file systems are stacked on it
        up = ["toolkit", "lab", "up", "--nodes", "vm", "--name", "benchvm", "--inventory", f"{scratch}/inventory"]
        down = ["toolkit", "lab", "down", "--name", "benchvm"]
        try:
            if "--cold" in sys.argv:
                figures["vm_lab_up_cold_s"], _ = timed(*up, ELASTIC_AI_LAB_CACHE=f"{scratch}/cache")
                timed(*down)
            timed(*up)
            timed(*down)
            figures["vm_lab_up_cached_s"], code = timed(*up)
            figures["vm_boot_cpu_s"] = qemu_cpu_s("benchvm")
            again, _ = timed(*up)
            figures["vm_lab_up_again_s"] = again
            if code:
                sys.exit("the lab did not come up")
        finally:
            figures["vm_lab_down_s"], _ = timed(*down)
    figures["load_after"] = os.getloadavg()[0]
    cache = Path(os.environ.get("ELASTIC_AI_LAB_CACHE", "/var/cache/elastic-ai-toolkit"))
    figures["runs_with"] = json.loads((cache / "kvm.json").read_text())["name"]
    print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
