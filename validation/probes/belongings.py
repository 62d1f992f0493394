"""What of somebody else's stands on a machine that is to be provisioned, as far as it is seen without root.

Preflight looks with root, and at more (plugins/module_utils/foreign.py); an inventory is told so much before.
"""

from __future__ import annotations

import re
from pathlib import Path

CONFS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
#: Names of processes -> the component of preflight_take_over.
AGENTS = {
    "slurmd": "slurm",
    "slurmctld": "slurm",
    "slurmdbd": "slurm",
    "kubelet": "kubernetes",
    "k3s-server": "kubernetes",
    "k3s-agent": "kubernetes",
    "rke2": "kubernetes",
    "pbs_mom": "scheduler",
    "sbatchd": "scheduler",
    "sge_execd": "scheduler",
    "condor_master": "scheduler",
    "nomad": "scheduler",
}
FILES = {
    "/usr/bin/ofed_info": "ofed",
    "/usr/bin/nvidia-uninstall": "driver",
    "/proc/driver/nvidia/version": "driver",
    "/etc/kubernetes/kubelet.conf": "kubernetes",
    "/etc/nccl.conf": "libraries",
}
OURS = ("/etc/elastic-ai/provisioned.json", "/var/lib/elastic-ai/ledger")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def belongings(root: Path = Path("/")) -> list[dict[str, str]]:
    """What is there, and its component of preflight_take_over; nothing where a run of the toolkit has been here."""
    if any((root / path[1:]).exists() for path in OURS):
        return []
    found: list[tuple[str, str]] = []
    for path in CONFS:
        text = _read(root / path[1:])
        told = re.findall(r"^\s*(?:SlurmctldHost|ControlMachine)\s*=\s*([^\s(#]+)", text, re.IGNORECASE | re.MULTILINE)
        if told and not set(told) <= {"linux0", "localhost"}:
            found.append(("slurm", f"{path} under {', '.join(told)}"))
    jobs = set()
    for process in sorted((root / "proc").glob("[0-9]*")):  # no further: one that ends meanwhile is glob's error
        comm = process / "comm"
        if re.search(r"^NSpid:\t\d+\t", _read(comm.parent / "status"), re.MULTILINE):
            continue  # in a container on this machine
        name = _read(comm).strip()
        if name in AGENTS:
            found.append((AGENTS[name], f"{name} runs"))
        job = re.match(r"slurmstepd: \[(\d+)", _read(comm.parent / "cmdline"))
        if job:
            jobs.add(job[1])
    if jobs:
        found.append(("jobs", f"{', '.join(sorted(jobs, key=int))} of Slurm"))
    if _read(root / "etc/docker/daemon.json").split() not in ([], ["{}"]):
        found.append(("docker", "/etc/docker/daemon.json"))
    found += [(component, path) for path, component in FILES.items() if (root / path[1:]).exists()]
    return [{"component": component, "what": what} for component, what in dict.fromkeys(found)]
