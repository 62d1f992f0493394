"""Lupine 1.x, the engine for production: the whole driver API, with kernels (lupinemachines/lupine).

Its archive is made by `toolkit engine pack lupine`, which puts a gate beside the server (engine/gate/gate.c):
the server itself asks nobody who he is and listens on all addresses. The gate is a provider by the publisher's own
interface (LUPINE_CHECKPOINT_LIBRARY), which ends the process of every connection that does not show the lease's token.
The server would go on without a provider that it cannot load, so the gate is loaded here before the server starts, and
a client tries a connection without a token before its program does.

What else it cannot do is handled here: it blocks for a minute on a port that does not answer, so ports are probed
before; one client joins at most 7 servers (1 TiB of addresses for each).
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import Exit, LeaseError
from toolkit.lease.engines import EngineCommand, EngineStart, Server, library_path, mps_environment

MEANT_FOR = "production (release 1.0.0; run by us against emulated GPUs, not yet on a GPU)"
HOLDS_PARTS = "MIG or MPS (`remoting_server_enforcement: mig`, `mps`), else parts are refused"
RUNS_KERNELS = True
RUNS_DRIVER_API = True
RUNS_RUNTIME = True
RUNS_FRAMEWORKS: tuple[str, ...] = ()
TRANSPORTS = ("tcp",)
#: Seven address arenas of 1 TiB; the eighth server would be dropped without an error.
MAX_SERVERS: int | None = 7
#: Its server keeps a copy of all memory that the program pins on its own machine; not measured, so a guess.
HOST_MEMORY_MIB = 16384
#: A process for each of the client's, with a thread for each of its threads (256 at most): eight ranks and room.
TASKS = 4096
STARTS_S = 15.0
#: MPS has a limit for each of its clients, which are processes.
HOLDS_MEMORY_OF: Literal["program"] = "program"
#: Its client has no file for it: the tokens of all servers, with commas between.
SECRET_VARIABLE = "LUPINE_SESSION"  # noqa: S105  # a name
#: The publisher's interface of providers, in the version that the gate has.
PROVIDER, PROVIDER_ABI = "lupinecr_get_lupine_provider_v1", 1
STRANGER_S = 5.0


def keeps_part(start: EngineStart) -> str:
    """It has no limits of its own: MIG or MPS has to hold the part."""
    if start.mps_pipe is None and not all(device.whole or device.mig for device in start.devices):
        return "lupine has no limits of its own; set remoting_server_enforcement: mig, or mps"
    return ""


def notes(start: EngineStart) -> list[str]:
    """What its owner ought to know."""
    if start.mps_pipe is None:
        return []
    return ["memory and threads are held by MPS for each process of the program, not for all of them together"]


def gate_of(engine_dir: Path) -> Path:
    """The gate of the installed archive, which can be loaded. LeaseError where it is not so: without it the server
    would take everybody who reaches its port."""
    path = engine_dir / "lib-server" / "libelastic-ai-gate.so"
    again = "make the engine's archive again with toolkit engine pack lupine"
    if not path.is_file():
        raise LeaseError(f"{path} is not there, so nobody would be asked for the lease's token; {again}")
    try:
        provider = getattr(ctypes.CDLL(str(path)), PROVIDER)
    except (OSError, AttributeError) as fault:
        raise LeaseError(f"{path} cannot be loaded ({fault}), so nobody would be asked for the lease's token") from None
    provider.restype = ctypes.c_void_p
    head = provider()
    # struct_size, then abi_version
    if not head or ctypes.c_uint32.from_address(head + ctypes.sizeof(ctypes.c_size_t)).value != PROVIDER_ABI:
        raise LeaseError(f"{path} is no provider of version {PROVIDER_ABI}; {again}")
    return path


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices of the lease, and the gate. Not with lib/, whose libcuda.so.1 is the client's and
    would be found before the driver's."""
    visible = ",".join(d.uuid for d in start.devices)
    environment = {
        "CUDA_VISIBLE_DEVICES": visible,
        "LUPINE_PORT": str(start.port),
        "LUPINE_LOG_LEVEL": "error",  # it writes every call otherwise
        "LUPINE_CHECKPOINT_LIBRARY": str(gate_of(start.engine_dir)),
        "ELASTIC_AI_TOKEN_FILE": str(start.token_file),
        "LD_LIBRARY_PATH": f"{start.engine_dir}/lib-server",
        **mps_environment(start),
    }
    return EngineCommand((str(start.engine_dir / "bin" / "lupine_driver_server"),), environment)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """The servers in the order of the devices, and their tokens. A GPU of this machine must not slip in before them."""
    return {
        "LUPINE_SERVER": ",".join(f"{s.address}:{s.port}" for s in servers),
        SECRET_VARIABLE: ",".join(s.token for s in servers),
        "LUPINE_DISABLE_LOCAL": "1",
        "LUPINE_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": library_path(engine_dir, os.environ),
    }


def secret(folder: Path) -> None:
    """In no file: see SECRET_VARIABLE."""


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


#: What its client sends first, without a session (RFC 9113; the header block by RFC 7541: POST, http, /, lupine).
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0) + _frame(1, 4, 1, b"\x83\x86\x84\x41\x06lupine")


def refuse_open(server: Server) -> None:
    """LeaseError where the server answers a client without a token: its gate is not in force."""
    where = f"{server.address}:{server.port}"
    try:
        with socket.create_connection((server.address, server.port), timeout=STRANGER_S) as sock:
            sock.sendall(_GREETING)
            answered = bool(sock.recv(1))
    except ConnectionError:
        answered = False  # it was cut off
    except OSError as fault:
        raise LeaseError(f"{where} did not say whether it asks for a token ({fault})", Exit.RETRY) from None
    if answered:
        raise LeaseError(f"the engine's server on {where} answers without the lease's token; nothing was started there")
