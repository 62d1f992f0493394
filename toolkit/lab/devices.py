"""Emulated GPUs of a lab's GPU servers, and the reference engine's artefact: built from C, cached by the sources' hash.

A lab comes up without them where the machine has no compiler, and says so.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit.engine.build import (
    EngineInfo,
    build_engine,
    compile_devices,
    default_release,
    missing_tools,
    needed_glibc,
    runs_with,
    source_hash,
    transports,
)
from toolkit.errors import BuildError
from toolkit.lab.gpufaults import GPU_IDLE, described
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, NodeSpec, cache_root, read_faults

LIBRARIES = "opt/elastic-ai-emulated/lib"
DESCRIPTION = "etc/elastic-ai-emulated/gpus.json"
UNIT = "elastic-ai-emulated.service"
#: As many as the reference architecture's machine has, of its kind; the memory is what a lab's machine can spare.
GPU_COUNT = 4
GPU_NAME = "Emulated V100-SXM2-32GB"
GPU_MEMORY_BYTES = 256 << 20
GPU_CONTEXT_BYTES = 512 << 10  # the lab's own: of its small memory about the share that a driver takes of a real one's
GPU_SM_COUNT = 80  # of a V100, NVIDIA Tesla V100 architecture whitepaper, table 1
GPU_PCI = ("1A", "1C", "1D", "1E")  # PCI buses of the GPUs in a PowerEdge C4140
#: Link and health that NVML says, where nothing is wrong; described, never measured. Link, clocks and power limit are a
#: V100-SXM2's (NVIDIA Tesla V100 data sheet; architecture whitepaper, table 1), the temperatures the lab's own. Its six
#: NVLinks are two to each other GPU, as on four GPUs of one board without NVSwitches.
GPU_HEALTH = {
    **{f"pcie{kind}_generation": 3 for kind in ("", "_max")},
    **{f"pcie{kind}_width": 16 for kind in ("", "_max")},
    **dict.fromkeys(("pcie_replays", "ecc_corrected", "ecc_uncorrected", "pages_retired", "repair_pending"), 0),
    **{"ecc_enabled": 1, "persistence": 1, "throttle_reasons": GPU_IDLE},
    **{"temperature_c": 40, "slowdown_c": 85, "shutdown_c": 90},
    **{"sm_mhz": 1530, "sm_max_mhz": 1530, "memory_mhz": 877, "memory_max_mhz": 877, "power_limit_mw": 300_000},
    **{"nvlinks_each": 2, "nvlink_mb_s": 25_000},
}
UUID_SPACE = uuid.UUID("6f1f1a52-6f3c-5b6e-9d53-5e1a57e1a1a1")  # of this lab's names alone
Say = Callable[[str], None]


@dataclass(frozen=True)
class Emulation:
    """What was built: the folder of the devices' libraries, and the engine's artefact with its sha256."""

    libraries: Path
    artefact: Path
    sha256: str
    info: EngineInfo


def emulation(image: Path, os_title: str, say: Say) -> Emulation | None:
    """The devices and the engine for nodes of that base image, built first when the cache lacks them (seconds).

    None, after a sentence that says what is missing, where they cannot be built or would not run in the nodes.
    """
    lacks = missing_tools()
    if lacks:
        say(f"no emulated GPUs and no reference engine in this lab: {lacks}")
        return None
    try:
        built = _cached(say)
    except BuildError as e:
        say(f"no emulated GPUs and no reference engine in this lab: {e}")
        return None
    libc = next(iter(sorted((image / "usr/lib").glob("*/libc.so.6"))), None)
    if libc is None or not runs_with(built.info.glibc, libc):
        say(
            f"no emulated GPUs and no reference engine in this lab: programs built by this machine's gcc need glibc "
            f"{built.info.glibc}, and nodes of {os_title} have an older one; choose a newer release with --os"
        )
        return None
    return built


def _cached(say: Say) -> Emulation:
    folder = cache_root() / "engine" / "-".join((source_hash()[:12], default_release(), *transports()))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built.json").is_file():
            say("building the reference engine and the emulated GPUs (once per change)")
            shutil.rmtree(folder, ignore_errors=True)  # left by a build that was killed
            made = build_engine(folder / "engine.tar.gz")
            files = compile_devices(folder / "lib")
            glibc = max(made.info.glibc, needed_glibc(files), key=lambda v: [int(n) for n in v.split(".")])
            described = {"sha256": made.sha256, "info": asdict(made.info) | {"glibc": glibc}}
            (folder / "built.json").write_text(json.dumps(described))
    raw = json.loads((folder / "built.json").read_text())
    return Emulation(folder / "lib", folder / "engine.tar.gz", raw["sha256"], EngineInfo(**raw["info"]))


def describe_gpus(spec: LabSpec, node: NodeSpec) -> list[dict[str, Any]]:
    """The entries of the node's gpus.json; the same each time the lab of that name is made."""
    return [
        {
            "uuid": f"GPU-{uuid.uuid5(UUID_SPACE, f'{spec.name}/{node.name}/{i}')}",
            "name": GPU_NAME,
            "memory_bytes": GPU_MEMORY_BYTES,
            "context_bytes": GPU_CONTEXT_BYTES,
            "sm_count": GPU_SM_COUNT,
            "compute_capability": "7.0",
            "pci_bus_id": f"00000000:{GPU_PCI[i]}:00.0",
            **GPU_HEALTH,
        }
        for i in range(GPU_COUNT)
    ]


def description(spec: LabSpec, node: NodeSpec, fault: str | None) -> str:
    """The node's gpus.json with a planted fault."""
    return json.dumps({"gpus": described(describe_gpus(spec, node), fault)}, indent=2) + "\n"


def node_files(spec: LabSpec, node: NodeSpec, built: Emulation | None) -> dict[str, tuple[bytes, int]]:
    """What a GPU server gets: path below its root -> content and mode. Nothing on other nodes."""
    if built is None or node.group != "gpu_servers":
        return {}
    files = {
        DESCRIPTION: description(spec, node, read_faults(spec).get(node.name)),
        # The first of the folder, so that these are found also where a driver's own libraries get installed.
        "etc/ld.so.conf.d/00-elastic-ai-emulated.conf": f"/{LIBRARIES}\n",
        "etc/tmpfiles.d/elastic-ai-emulated.conf": "f /dev/shm/elastic-ai-devices 0666 root root -\n",
    }
    found = {name: (text.encode(), 0o644) for name, text in files.items()}
    # Before a driver's own, whose nvidia-smi refuses every library but the driver's.
    places = {"nvidia-smi": "usr/local/bin/nvidia-smi"}
    made = sorted(built.libraries.iterdir())
    return found | {places.get(p.name, f"{LIBRARIES}/{p.name}"): (p.read_bytes(), 0o755) for p in made}


def machine_files(files: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """The same for a virtual machine, which has to run ldconfig by itself."""
    unit = (
        "[Unit]\nDescription=Tell the linker where the emulated GPUs' libraries are\n"
        # Early, so that no service looks for a library before; by default it would wait for its own target.
        "DefaultDependencies=no\nAfter=local-fs.target\nBefore=sysinit.target\n"
        "ConditionPathExists=!/var/lib/elastic-ai-emulated\n\n"
        "[Service]\nType=oneshot\nExecStart=/sbin/ldconfig\nExecStart=/usr/bin/touch /var/lib/elastic-ai-emulated\n"
    )
    return files | {f"etc/systemd/system/{UNIT}": (unit.encode(), 0o644)} if files else {}


def install(root: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """Write them into a container's file system, also while it runs: programs that use a library keep the old one."""
    if not files:
        return
    for name, (data, mode) in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(data)
        new.chmod(mode)
        new.replace(path)
    run(["chroot", str(root), "ldconfig"])
