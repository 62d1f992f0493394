"""Lupine, the engine for production: the whole driver API, with kernels. By its documentation (lupinemachines/lupine).

What it cannot do is handled here: it has no authentication and no bind address, so who may connect is the firewall's
matter alone, which lets in the client's machine, not one user of it; it blocks for a minute on a port that does not
answer, so ports are probed before; one client joins at most 7 servers (1 TiB of addresses for each).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease.engines import Command, Server, Start, library_path, mps_environment

MEANT_FOR = "production; by its documentation, not yet run by us on a GPU"
HOLDS_PARTS = "MIG or MPS (`remoting_server_enforcement: mig`, `mps`), else parts are refused"
RUNS_KERNELS = True
#: Seven address arenas of 1 TiB; the eighth server would be dropped without an error.
MAX_SERVERS: int | None = 7
#: Its server keeps a copy of all memory that the program pins on its own machine; not measured, so a guess.
HOST_MEMORY_MIB = 16384
#: MPS has a limit for each of its clients, which are processes.
HOLDS_MEMORY_OF: Literal["program"] = "program"


def keeps_part(start: Start) -> str:
    """It has no limits of its own: MIG or MPS has to hold the part."""
    if start.mps_pipe is None and not all(device.whole or device.mig for device in start.devices):
        return "lupine has no limits of its own; set remoting_server_enforcement: mig, or mps"
    return ""


def notes(start: Start) -> list[str]:
    """What its owner ought to know."""
    said = ["lupine knows no users: everybody on this machine could use the lease"]
    if start.mps_pipe is not None:
        said.append("memory and threads are held by MPS for each process of the program, not for all of them together")
    return said


def command(start: Start) -> Command:
    """The server with the devices of the lease; it listens on all addresses, so only the firewall closes it. Not with
    lib/, whose libcuda.so.1 is the client's and would be found before the driver's."""
    visible = ",".join(d.uuid for d in start.devices)
    environment = {
        "CUDA_VISIBLE_DEVICES": visible,
        "LUPINE_PORT": str(start.port),
        "LD_LIBRARY_PATH": f"{start.engine_dir}/lib-server",
        **mps_environment(start),
    }
    return Command((str(start.engine_dir / "bin" / "lupine_driver_server"),), environment)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """The servers in the order of the devices. A GPU of this machine must not slip in before them."""
    return {
        "LUPINE_SERVER": ",".join(f"{s.address}:{s.port}" for s in servers),
        "LUPINE_DISABLE_LOCAL": "1",
        "LD_LIBRARY_PATH": library_path(engine_dir, os.environ),
    }


def secret(folder: Path) -> None:
    """It asks for none: who reaches the port has the lease."""
