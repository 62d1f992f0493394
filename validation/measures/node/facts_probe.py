"""What a node is: hardware, fabric ports and the versions of the stack that was installed on it.

A component that is not there is reported as "", never left out, so that the judge can tell "absent" from "not asked".

`stdout`: the facts again as JSON. `facts`: as NodeFacts.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validation.probes import (
    PROGRAM_FOLDER,
    ProbeDoc,
    gpudirect,
    gpulibs,
    host_parts,
    installed,
    json_text,
    libenv,
    node_state,
    pcie,
    processors,
    rdma_ports_sysfs,
    smi,
    tuning,
    virtualisation,
)
from validation.probes.carrier import carrier_changes
from validation.probes.tool import Ran, document, group, run_tool

LAB_MARK = Path("/etc/elastic-ai-lab")
TRAINING = "/usr/local/bin/elastic-ai-training-exec"
IMAGE = Path("/etc/elastic-ai/training/image.json")  # as role horovod notes it
TOOL_TIMEOUT_S = 10.0
NO_SPEED = 2**32 - 1

#: Runs in the training container: versions of what training uses, from its own packages; nothing is imported for it.
_TRAINING = r"""
import importlib.metadata as m, json, re, subprocess
dists = {d.metadata["Name"].lower(): d.version for d in m.distributions() if d.metadata["Name"]}
def said(*command):
    try: return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError): return ""
listed = said("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n")
debs = {r[1]: r[2] for r in map(str.split, listed.splitlines()) if len(r) == 3 and r[0] == "installed"}
def first(pattern, *of):
    return next((v for have in of for n, v in sorted(have.items()) if re.fullmatch(pattern, n)), "")
mpi = re.search(r"\(Open MPI\)\s+(\S+)", said("mpirun", "--version"))
print(json.dumps({
    "horovod": first("horovod", dists), "torch": first("torch", dists), "openmpi": mpi.group(1) if mpi else "",
    "nccl": first(r"libnccl2|nvidia-nccl-cu\d+", debs, dists),
    "cudnn": first(r"libcudnn\d+(-cuda-\d+)?|nvidia-cudnn-cu\d+", debs, dists),
}))
"""


@dataclass
class Asked:
    """What is asked of this probe."""

    interfaces: list[str] = field(default_factory=list)  # fabric ports to look at
    rdma_only: bool = False  # fabric ports and RDMA devices alone: no tool is started


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _say(*command: str) -> str:
    """What a tool prints when it succeeds, else ""."""
    ran = run_tool(command, timeout_s=TOOL_TIMEOUT_S)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def operating_system(text: str) -> str:
    """`debian 12` from the contents of os-release."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    fields = {key: value.strip().strip("\"'") for key, value in pairs}
    return f"{fields.get('ID', '')} {fields.get('VERSION_ID', '')}".strip()


def fabric_port(name: str, sysfs: Path = Path("/sys")) -> dict[str, Any]:
    """A fabric port as FabricPort.

    Sysfs says -1, nothing, 0 or (older kernels) 2^32-1 of the speed of a port without a link or of a virtual one.
    """
    net = sysfs / "class" / "net" / name
    if not net.exists():
        return {"interface": name, "operstate": "absent"}
    mtu, speed = (_read(net / leaf) for leaf in ("mtu", "speed"))
    return {
        "interface": name,
        "operstate": _read(net / "operstate") or "unknown",
        "mtu": int(mtu) if mtu.isdigit() else None,
        "speed_mbit": int(speed) if speed.isdigit() and int(speed) not in (0, NO_SPEED) else None,
        "rdma": rdma_ports_sysfs.short(name, sysfs),
        "carrier_changes": carrier_changes(name, sysfs),
    }


def rdma_devices(root: Path = Path("/sys/class"), interfaces: list[str] | None = None) -> list[dict[str, Any]]:
    """RDMA devices whose network interface this node sees, with their interfaces; some devices have none.

    In a container /sys shows the host's devices too: a device whose interface is not among the node's is not its own.
    """
    visible = {p.name for p in (root / "net").glob("*")} if interfaces is None else set(interfaces)
    found = []
    for device in sorted((root / "infiniband").glob("*")):
        names = rdma_ports_sysfs.interfaces(device)
        if names & visible or not names:
            found.append({"name": device.name, "interfaces": sorted(names & visible)})
    return found


def nic_model(interface: str) -> str:
    """Name of the card behind an interface, by lspci, else its PCI ids; without a card its driver (`veth`,
    `virtio-net`).
    """
    device = Path("/sys/class/net", interface, "device")
    if device.resolve().name.startswith("virtio"):
        return "virtio-net"  # of a bus of its own, which lspci does not know
    if not device.exists():
        return group(r"^driver: (\S+)", _say("ethtool", "-i", interface))
    name = _say("lspci", "-s", device.resolve().name)
    return name.split(": ", 1)[-1] if name else f"{_read(device / 'vendor')}:{_read(device / 'device')}".strip(":")


def server_model(virt: str, container: bool, root: Path = Path("/sys/class/dmi/id")) -> str:
    """The machine's product name; in a container the container's kind, for DMI there tells of the host."""
    return virt if container else _read(root / "product_name")


def ports(interfaces: list[str]) -> dict[str, Any]:
    """The fabric ports, with the RDMA devices that carry them, and all RDMA devices."""
    return {"fabric_ports": [fabric_port(i) for i in interfaces], "rdma_devices": rdma_devices()}


def _said_by_training(text: str) -> dict[str, Any]:
    """The report of _TRAINING, whatever an image's start-up prints before and after it; {} where there is none."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "horovod" in found:
            return found
    return {}


def training_image(noted: Path | None = None) -> str:
    """The image of the training container by its digest, repository@sha256:…; "" where none is noted."""
    try:
        said = json.loads(_read(IMAGE if noted is None else noted) or "{}")
        reference, digest = (str(said.get(key) or "") for key in ("reference", "digest"))
    except (ValueError, AttributeError):
        return ""
    return f"{reference.partition('@')[0]}@{digest}" if reference and digest else reference or digest


def nvlink(gpu_count: int) -> dict[str, Any]:
    """What NVML says, as in NodeFacts from `nvlink` on; without a GPU of nvidia-smi's it says nothing,
    unless the devices are a lab's, for which there is no nvidia-smi.
    """
    program = PROGRAM_FOLDER / "nvlinks.py"  # not imported: the scan ships this module, and asks no NVML
    ran = run_tool([sys.executable, "-I", str(program)], timeout_s=TOOL_TIMEOUT_S)
    try:
        said = json_text.report(ran.stdout)
    except ValueError:
        said = {"unanswered": ran.failure or "NVML was asked and said nothing"}
    if not gpu_count:
        emulated = [gpu for gpu in said.get("gpus") or () if gpu["emulated"]]
        return {"nvlink": emulated or None, "nvlink_unread": "" if emulated else "nvidia-smi lists no GPU"}
    return {
        "nvlink": said.get("gpus"),
        "nvlink_unread": said.get("unanswered", ""),
        "nvlink_disabled": bool(said.get("disabled")),
        "driver_loaded": said.get("driver", ""),
    }


def driver_libraries() -> dict[str, Any] | None:
    """The driver's libraries as DriverLibraries; None where nothing came of the question."""
    ran = run_tool([sys.executable, "-I", gpulibs.__file__], timeout_s=TOOL_TIMEOUT_S)
    try:
        return json_text.report(ran.stdout)
    except ValueError:
        return None


def fabric_manager_state() -> str:
    """What systemd says of Fabric Manager: active, inactive, failed; "" without systemd."""
    return run_tool(["systemctl", "is-active", "nvidia-fabricmanager"], timeout_s=TOOL_TIMEOUT_S).stdout.strip()


def with_firmware(card: dict[str, Any]) -> dict[str, Any]:
    """A card as pcie.collect describes it; the firmware of an adapter without RDMA by ethtool."""
    if card["what"] != "nic" or card.get("firmware", "?"):
        return card
    said = _say("ethtool", "-i", pcie.carrier(card["interface"]))
    return {**card, "firmware": group(r"^firmware-version: (?!N/A)(\S.*)$", said)}


def clock_offset_s(said: str) -> float | None:
    """The last offset of `chronyc -n tracking`; None where it follows no clock, and says 0 of none."""
    if not re.search(r"^Leap status\s*:\s*(?!Not synchronised)\S", said, re.MULTILINE):
        return None
    offset = group(r"^Last offset\s*:\s*([-+]?\d+\.\d+)", said)
    return float(offset) if offset else None


def collect(interfaces: list[str]) -> dict[str, Any]:
    """All facts of this node."""
    gpus = smi.answering()
    versions = _say(TRAINING, "python3", "-I", "-c", _TRAINING)
    training = _said_by_training(versions)
    offset = clock_offset_s(_say("chronyc", "-n", "tracking"))
    try:
        probes = importlib.metadata.version("elastic-ai-toolkit")
    except importlib.metadata.PackageNotFoundError:
        probes = ""
    virt, container = virtualisation.detect()
    return {
        "type": "node",
        "virt": virt,
        "lab": _read(LAB_MARK),
        "model": server_model(virt, container),
        "cpu_count": len(os.sched_getaffinity(0)),
        **processors.collect(),
        "memory_beside_gib": processors.memory_beside_gib(),
        "gpu_count": len(gpus),
        "gpu_model": ", ".join(sorted(set(gpus))),
        "nic_model": ", ".join(sorted({nic_model(i) for i in interfaces} - {""})),
        **ports(interfaces),
        "pci": [with_firmware(card) for card in pcie.collect(interfaces)],
        "numa_nodes": processors.numa_nodes(),
        **nvlink(len(gpus)),
        "driver_module": gpulibs.module(_read(gpulibs.MODULE)),
        "driver_libraries": driver_libraries(),
        "gpudirect": gpudirect.collect(),
        "nvswitches": pcie.nvswitches(),
        "fabric_manager_state": fabric_manager_state(),
        "os": operating_system(_read("/etc/os-release")),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        # a site without the training container may have MPI on the node itself
        "openmpi": training.get("openmpi") or group(r"\(Open MPI\)\s+(\S+)", _say("mpirun", "--version")),
        "docker": _say("docker", "version", "--format", "{{.Server.Version}}"),
        "library_env": libenv.collect(),
        "tuning": tuning.collect(),
        "state": node_state.collect(),
        "runc": group(r"^runc version (\S+)", _say("runc", "--version")),
        "horovod": training.get("horovod", ""),
        "torch": training.get("torch", ""),
        "training_nccl": training.get("nccl", ""),
        "training_cudnn": training.get("cudnn", ""),
        "training_image": training_image(),
        "probes": probes,
        "clock_offset_s": offset,
        "parts": host_parts.collect(container),
        **installed.collect(),
    }


def probe(args: Asked) -> ProbeDoc:
    """Collect the facts of this node."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = ports(args.interfaces) if args.rdma_only else collect(args.interfaces)
        return Ran(["facts", *args.interfaces], 0, json.dumps(facts, sort_keys=True), ""), facts, None

    return document("facts", "probes", measure, lambda ran: str(json.loads(ran.stdout or "{}").get("probes", "")))
