"""The toolkit's engine for PyTorch: a program's operators, one small message each, run by the server's own PyTorch.

Its client is a plug-in of the user's PyTorch (engine/torch), which has to be of a minor release that the engine was
built for. Its server runs in the PyTorch of a Python that role remoting_server names beside the engine (SERVER_FILE).
Where a lease's devices are emulated, that PyTorch computes on the processor, so that real programs have real results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import framework_engine
from toolkit.lease.engines import EngineCommand, EngineStart, Server, one_transport
from toolkit.lease.framework_engine import keeps_part as keeps_part
from toolkit.lease.framework_engine import secret as secret

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
#: Of a session on processors: an emulated GPU computes as one processor, so that results have the same bits on every
#: part and server. Two threads on two busy processors wait for each other: 4.8 s for a step of 0.03 s (ResNet-50).
THREADS = ("--threads", "1")
#: And of a part its share of one, by the quota of its unit (toolkit/lease/machine/quota.py).
HOLDS_PROCESSORS = True
#: Collectives, and copies between devices, go from server to server.
KNOWS_PEERS = True


def notes(start: EngineStart) -> list[str]:
    """What its owner ought to know."""
    said = []
    if any(device.emulated for device in start.devices):
        said.append("its PyTorch computes on the server's processor: real results, no GPU's speed")
        said.append("an emulated GPU computes as one processor, a part as its share of one")
        return said
    return framework_engine.computing_notes(start)


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices, the transport and the peers of the lease."""
    emulated = any(d.emulated for d in start.devices)
    python = framework_engine.python_of(start.engine_dir, "torch", "PyTorch")
    more = ["--transport", start.transport]
    more += ["--device", "cpu", "--devices", str(len(start.devices)), *THREADS] if emulated else ["--device", "cuda"]
    if start.peers_file and start.peer_token_file:
        more += ["--peers", str(start.peers_file), "--peer-token-file", str(start.peer_token_file)]
    return framework_engine.command(start, python, "elastic-ai-torchserver", more)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """A server and a token for each device, in their order, and the plug-in, which `import torch` finds. LeaseError
    where the servers have no one transport."""
    transport, devices = one_transport(servers), [server for server in servers for _ in range(server.devices)]
    return {
        "ELASTIC_AI_TORCH_SERVERS": ",".join(f"{s.address}:{s.port}" for s in devices),
        "ELASTIC_AI_TOKEN_FILE": framework_engine.write_tokens(folder, [server.token for server in devices]),
        "ELASTIC_AI_TRANSPORT": transport,
        "ELASTIC_AI_TORCH_ONLY_LEASED": "1",  # a GPU of this machine must not slip in before them
        **framework_engine.before_others({"PYTHONPATH": f"{engine_dir}/python"}),
    }
