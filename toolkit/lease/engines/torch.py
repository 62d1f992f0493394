"""The toolkit's engine for PyTorch: a program's operators, one small message each, run by the server's own PyTorch.

Its client is a plug-in of the user's PyTorch (engine/torch), which has to be of a minor release that the engine was
built for. Its server runs in the PyTorch of a Python that role remoting_server names beside the engine (SERVER_FILE).
Where a lease's devices are emulated, that PyTorch computes on the processor, so that real programs have real results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineCommand, EngineStart, Server, mps_environment, one_transport
from toolkit.lease.fields import DamagedDocument, Fields

MEANT_FOR = (
    "PyTorch programs, unchanged, with the user's ordinary PyTorch; `toolkit engine build torch` makes it. "
    "Beside another engine (`remoting_engine_torch_artifact`)"
)
HOLDS_PARTS = "memory, by the engine itself; or MIG (`remoting_server_enforcement: mig`)"
RUNS_KERNELS = True
RUNS_DRIVER_API = False
RUNS_RUNTIME = False
RUNS_FRAMEWORKS: tuple[str, ...] = ("torch",)
TRANSPORTS = ("tcp", "verbs")
MAX_SERVERS: int | None = None
#: Measured on a processor: the launcher 226 MiB with PyTorch 2.13, a session 25 MiB beside what it shares with it, and
#: 190 MiB more while it trains ResNet-50. CUDA's libraries take host memory for each session, which was not measured.
HOST_MEMORY_MIB = 4096
#: Of a part of an emulated GPU: no libraries of CUDA's; its memory is counted beside this. Seven sevenths are to fit.
EMULATED_PART_MIB = 1024
#: A child for each of 128 sessions, with 3 threads and PyTorch's own, which are as many as processors where it computes
#: on them.
TASKS = 4096
#: It imports PyTorch first, from a disk that may be cold.
STARTS_S = 60.0
HOLDS_MEMORY_OF: Literal["lease"] = "lease"
SECRET_VARIABLE = ""
MIB = 1 << 20
#: Of a session on processors: an emulated GPU computes as one processor, so that results have the same bits on every
#: part and server. Two threads on two busy processors wait for each other: 4.8 s for a step of 0.03 s (ResNet-50).
THREADS = ("--threads", "1")
#: And of a part its share of one, by the quota of its unit (toolkit/lease/quota.py).
HOLDS_PROCESSORS = True
#: Collectives, and copies between devices, go from server to server.
KNOWS_PEERS = True
#: Beside `current`, written by role remoting_server: which Python has the server's PyTorch.
SERVER_FILE = "server.json"
#: The role's own environment, where that file is not there.
OWN_PYTHON = "venv/bin/python"


def keeps_part(start: EngineStart) -> str:
    """Memory is held by the server itself, everywhere."""
    return ""


def notes(start: EngineStart) -> list[str]:
    """What its owner ought to know."""
    said = []
    if any(device.emulated for device in start.devices):
        said.append("its PyTorch computes on the server's processor: real results, no GPU's speed")
        said.append("an emulated GPU computes as one processor, a part as its share of one")
    elif any(not d.whole and not d.mig for d in start.devices) and start.mps_pipe is None:
        said.append("the part holds for memory; computing is not limited")
    return said


def python_of(engine_dir: Path) -> Path:
    """The Python that has the server's PyTorch. LeaseError where there is none."""
    beside = engine_dir.parent
    try:
        fields = Fields.in_file(beside / SERVER_FILE)
        python = fields.path("python")
        fields.end()
    except FileNotFoundError:
        python = beside / OWN_PYTHON
    except DamagedDocument as fault:
        raise LeaseError(f"{fault}; run site.yml") from None
    if not os.access(python, os.X_OK):
        raise LeaseError(f"{python} is not there, and the engine torch runs by its PyTorch; run site.yml")
    return python


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices, the limit, the token and the clients of the lease."""
    limits = [d.limit_mib for d in start.devices if d.limit_mib is not None]
    emulated = any(d.emulated for d in start.devices)
    context = max(d.context_bytes for d in start.devices)
    argv = [
        str(python_of(start.engine_dir)),
        "-I",  # nothing of a folder or a variable that is not the engine's
        str(start.engine_dir / "bin" / "elastic-ai-torchserver"),
        *("--bind", start.address),
        *("--port", str(start.port)),
        *("--port-file", str(start.port_file)),
        *("--token-file", str(start.token_file)),
        *("--allow", ",".join(start.clients)),
        *("--report-fd", "1"),
        *("--transport", start.transport),
        *(("--device", "cpu", "--devices", str(len(start.devices)), *THREADS) if emulated else ("--device", "cuda")),
        *(["--memory-limit", str(min(limits) * MIB), "--context-bytes", str(context)] if limits else []),
    ]
    if start.peers_file and start.peer_token_file:
        argv += ["--peers", str(start.peers_file), "--peer-token-file", str(start.peer_token_file)]
    visible = ",".join(d.uuid for d in start.devices)
    return EngineCommand(tuple(argv), {"CUDA_VISIBLE_DEVICES": visible, **mps_environment(start)}, tells_port=True)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """A server and a token for each device, in their order, and the plug-in, which `import torch` finds. LeaseError
    where the servers have no one transport."""
    transport = one_transport(servers)
    tokens, devices = secret(folder), [server for server in servers for _ in range(server.devices)]
    with os.fdopen(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.writelines(f"{server.token}\n" for server in devices)
    before = os.environ.get("PYTHONPATH", "")
    return {
        "ELASTIC_AI_TORCH_SERVERS": ",".join(f"{s.address}:{s.port}" for s in devices),
        "ELASTIC_AI_TOKEN_FILE": str(tokens),
        "ELASTIC_AI_TRANSPORT": transport,
        "ELASTIC_AI_TORCH_ONLY_LEASED": "1",  # a GPU of this machine must not slip in before them
        "PYTHONPATH": f"{engine_dir}/python" + (f":{before}" if before else ""),
    }


def secret(folder: Path) -> Path:
    """A line for each device."""
    return folder / "tokens"
