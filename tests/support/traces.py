"""What a lab could leave on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from toolkit.lab import lab as labs
from toolkit.lab import network


def said(*command: str) -> str:
    """stdout of a command."""
    return subprocess.run(command, text=True, capture_output=True, check=False).stdout


def traces(name: str) -> dict[str, list[str]]:
    """Everything of a lab that could be left on this machine."""
    mark = f"eai-{name}"
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    links = json.loads(said("ip", "-j", "link"))
    own = {str(os.getpid()), str(os.getppid())}
    processes = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if proc.name not in own and (mark in words or f"labs/{name}/" in words):
            processes.append(words)
    listing = ("systemctl", "list-units", "--all", "--plain", "--no-legend", f"elastic-ai-lab-{name}*")
    units = said(*listing) if Path("/run/systemd/system").is_dir() else ""
    return {
        "processes": processes,
        "mounts": [m for m in mounts if mark in m or f"labs/{name}" in m],
        "namespaces": network.namespaces_of(name),
        "units": units.splitlines(),
        "links": [x["ifname"] for x in links if x.get("ifalias") == mark],
        "cgroups": [str(p) for p in Path("/sys/fs/cgroup").glob(f"*/elastic-ai-lab/{name}")],
        "rules": [r for r in said("iptables-save").splitlines() if "eai" in r or "10.77." in r],
        "folders": [str(labs.lab_dir(name))] if labs.lab_dir(name).exists() else [],
    }
