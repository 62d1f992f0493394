"""Which versions of the stack's components the node's package manager has, and what provisioning wrote down of it.

The versions are read from the packages themselves; the record of the provisioning is only compared with them.
"""

from __future__ import annotations

import fnmatch
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from validation.probes.tool import Ran, run_tool

RECORD = Path("/etc/elastic-ai/provisioned.json")
PENDING = Path("/run/elastic-ai/reboot-required")
TIMEOUT_S = 20.0
#: component -> package names that carry it, over all distributions and providers; the first that is installed counts
PACKAGES: dict[str, tuple[str, ...]] = {
    "driver": ("libcuda1", "libnvidia-compute", "libnvidia-compute-*", "nvidia-driver-cuda"),
    "fabric_manager": ("nvidia-fabricmanager", "nvidia-fabricmanager-[0-9]*", "nvidia-fabric-manager"),
    "cuda": ("cuda-toolkit-[0-9]*[0-9]",),  # not cuda-toolkit-12-8-config-common, which each library of CUDA brings
    "cudnn": ("libcudnn[0-9]", "libcudnn[0-9]-cuda-*"),
    "nccl": ("libnccl2", "libnccl"),
    "ofed": ("doca-ofed", "rdma-core"),
    "container_toolkit": ("nvidia-container-toolkit",),
    "dcgm": ("datacenter-gpu-manager-4-core", "datacenter-gpu-manager"),  # the second: DCGM 3
    # the last two: SchedMD's own Debian packages (make deb) of 23.11 and later
    "slurm": ("slurmd", "slurmctld", "slurm-slurmd", "slurm-slurmctld", "slurm-smd-slurmd", "slurm-smd-slurmctld"),
}
#: beside the components: the package that Docker is from, whose name tells who puts fixes into it
BESIDE: dict[str, tuple[str, ...]] = {"docker_package": ("docker-ce", "moby-engine", "docker.io", "docker")}
_DEB = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version} ${Architecture}\n")
#: Architecture of Debian's packages for this machine, by the kernel's name of it: those of others do not count.
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}
# With the epoch, as dpkg-query tells it and as provisioning writes down what it pinned.
_RPM = ("rpm", "-qa", "--queryformat", "installed %{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n")


def packages(listing: str, machine: str = "") -> dict[str, str]:
    """Package -> version from a package manager's `status name version architecture` lines; only what is installed.

    A package whose triggers wait is. Of another architecture (libcuda1:i386) none counts; rpm's lines name none.
    """
    native = NATIVE.get(machine or platform.machine(), "")
    rows = (line.split() for line in listing.splitlines())
    return {
        row[1]: row[2]
        for row in rows
        if len(row) in (3, 4)
        and (row[0] == "installed" or row[0].startswith("triggers-"))
        and (len(row) == 3 or not native or row[3] in (native, "all"))
    }


def component(installed: dict[str, str], patterns: Sequence[str]) -> str:
    """`package version` of the first pattern that an installed package matches, "" when none does."""
    for pattern in patterns:
        for name in sorted(fnmatch.filter(installed, pattern)):
            return f"{name} {installed[name]}"
    return ""


def drift(record: dict[str, Any], installed: dict[str, str]) -> list[dict[str, str]]:
    """What provisioning pinned and the node no longer has in that version, as Drift."""
    pinned = record.get("pinned", {})
    return [
        {"package": name, "found": installed.get(name, ""), "provisioned": str(version)}
        for name, version in sorted(pinned.items() if isinstance(pinned, dict) else [])
        if installed.get(name) != version
    ]


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """What the last provisioning wrote down, {} where there was none or it cannot be read."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def collect(record: Path = RECORD, pending: Path = PENDING) -> dict[str, Any]:
    """Facts about the installed stack: every component, the release, stand-ins, drift and reboots that wait."""
    ran: Ran = run_tool(_DEB, timeout_s=TIMEOUT_S)
    if ran.returncode != 0:
        ran = run_tool(_RPM, timeout_s=TIMEOUT_S)
    installed = packages(ran.stdout)
    written = read_record(record)
    reasons = [
        line for path in sorted(pending.glob("*")) for line in path.read_text(errors="replace").splitlines() if line
    ]
    return {
        **{name: component(installed, patterns) for name, patterns in (PACKAGES | BESIDE).items()},
        "stack_release": str(written.get("release", "")),
        "stand_ins": [str(s) for s in written.get("stand_ins", [])],
        "not_applicable": [str(s) for s in written.get("not_applicable", [])],
        "drift": drift(written, installed),
        "reboot_pending": reasons,
    }
