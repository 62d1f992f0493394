"""vSphere Bitfusion 3.x and 4.x: a pass-through for those who still own it. By its documentation, not run by us.

No release can be had today: its availability ended in 2023, its support in 2025, and it knows no CUDA for GPUs from
Hopper on. Its servers are appliances that give out GPUs by themselves, so nothing here is a lease of Slurm's:
`toolkit run` passes the request on to Bitfusion's own client, and refuses options that this has not. Token
(/etc/bitfusion/tls/ca.crt, ~/.bitfusion/client.yaml) and servers are the vCenter's to hand out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineCommand, EngineGpus, EngineStart, Server

MEANT_FOR = (
    "those who still own it (its support ended in 2025): `toolkit run` passes one command on to its client, its "
    "appliances give out the GPUs. By its documentation, not run by us"
)
HOLDS_PARTS = "by Bitfusion"
RUNS_KERNELS = True
RUNS_DRIVER_API = True
RUNS_RUNTIME = True
RUNS_FRAMEWORKS: tuple[str, ...] = ()
TRANSPORTS = ("tcp",)
MAX_SERVERS: int | None = None
HOST_MEMORY_MIB = 0  # its appliances' own matter
TASKS = 0
STARTS_S = 15.0
SECRET_VARIABLE = ""
HOLDS_MEMORY_OF: Literal["none"] = "none"  # its appliances' matter, of which no lease of ours is
PORT = 56001


def keeps_part(start: EngineStart) -> str:
    """Not ours to hold."""
    return "Bitfusion's appliances grant their GPUs themselves"


def notes(start: EngineStart) -> list[str]:
    """What its documentation says of parts."""
    return ["Bitfusion partitions memory; computing is shared"]


def command(start: EngineStart) -> EngineCommand:
    """There is no server to start."""
    raise LeaseError("Bitfusion's servers are appliances; they are not started by leases")


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """Its client finds its servers by ~/.bitfusion/servers.conf."""
    return {}


def secret(folder: Path) -> None:
    """Its client has its own."""


def run_elsewhere(program: Sequence[str], gpus: EngineGpus) -> list[str]:
    """`bitfusion run` for this request. LeaseError for servers that cannot be written as host:port."""
    words = ["bitfusion", "run", "-n", str(gpus.count)]
    if gpus.memory_mib is not None:
        words += ["-m", str(gpus.memory_mib)]
    elif gpus.part is not None and gpus.part != 1:
        words += ["-p", f"{float(gpus.part):.6g}"]
    if gpus.servers:
        listed = [server if ":" in server else f"{server}:{PORT}" for server in gpus.servers]
        if any(not re.fullmatch(r"[A-Za-z0-9.-]+:\d{1,5}", server) for server in listed):
            raise LeaseError(f"-l {','.join(gpus.servers)}: give servers as host or host:port")
        words += ["-l", ",".join(listed)]
    return [*words, "--", *program]
