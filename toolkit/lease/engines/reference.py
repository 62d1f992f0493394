"""The toolkit's own engine: the CUDA driver API, not the runtime; for labs, CI and calibration (toolkit.engine)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease.engines import EngineCommand, EngineStart, Server, library_path, mps_environment, one_transport

MEANT_FOR = (
    "labs and calibration; `toolkit engine build` makes it. Kernels, memory and copies by the CUDA driver API; "
    "not the runtime, so no PyTorch"
)
HOLDS_PARTS = "memory, by the engine itself; or MIG (`remoting_server_enforcement: mig`)"
RUNS_KERNELS = True
RUNS_DRIVER_API = True
RUNS_RUNTIME = False
RUNS_FRAMEWORKS: tuple[str, ...] = ()
TRANSPORTS = ("tcp", "verbs")
MAX_SERVERS: int | None = None
#: The server and the agent, and 16 MiB of staging for each of some 25 contexts that copy at a time; with verbs, whose
#: rings take 4 MiB more, of some 20.
HOST_MEMORY_MIB = 512
#: A child for each of at most 128 sessions, with a thread that watches and five more where copies are striped.
TASKS = 1024
STARTS_S = 15.0
HOLDS_MEMORY_OF: Literal["lease"] = "lease"
SECRET_VARIABLE = ""
MIB = 1 << 20


def keeps_part(start: EngineStart) -> str:
    """Memory is held by the server itself, everywhere."""
    return ""


def notes(start: EngineStart) -> list[str]:
    """What it does not do."""
    said = ["the reference engine runs kernels by the driver API alone (no PyTorch); not for production"]
    if any(not d.whole and not d.mig for d in start.devices) and start.mps_pipe is None:
        said.append("the part holds for memory; computing is not limited")
    return said


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices, the limit, the token and the clients of the lease."""
    limits = [d.limit_mib for d in start.devices if d.limit_mib is not None]
    context = max(d.context_bytes for d in start.devices)
    argv = [
        str(start.engine_dir / "bin" / "elastic-ai-refserver"),
        *("--bind", start.address),
        *("--port", str(start.port)),
        *("--port-file", str(start.port_file)),
        *("--token-file", str(start.token_file)),
        *("--allow", ",".join(start.clients)),
        *("--report-fd", "1"),
        *("--transport", start.transport),
        *(["--memory-limit", str(min(limits) * MIB), "--context-bytes", str(context)] if limits else []),
    ]
    visible = ",".join(d.uuid for d in start.devices)
    return EngineCommand(tuple(argv), {"CUDA_VISIBLE_DEVICES": visible, **mps_environment(start)}, tells_port=True)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """Servers in the order of the devices, and their tokens in a file. LeaseError where they have no one transport."""
    transport, tokens = one_transport(servers), secret(folder)
    with os.fdopen(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.writelines(f"{server.token}\n" for server in servers)
    return {
        "ELASTIC_AI_SERVERS": ",".join(f"{s.address}:{s.port}" for s in servers),
        "ELASTIC_AI_TOKEN_FILE": str(tokens),
        "ELASTIC_AI_TRANSPORT": transport,
        "LD_LIBRARY_PATH": library_path(engine_dir, os.environ),
    }


def secret(folder: Path) -> Path:
    """A line for each server."""
    return folder / "tokens"
