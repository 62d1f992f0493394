"""The toolkit's engine for TensorFlow: an adapter to TensorFlow's own distributed runtime, and no protocol.

Its server is a door that asks for the lease's token, and behind it a TensorFlow server for each session, which reaches
no file and no address (engine/tensorflow). Its client is read by Python at the start of the user's program, whose
TensorFlow has to be of the server's minor release. Where a lease's devices are emulated, the server's TensorFlow
computes on the processor, so that real programs have real results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineCommand, EngineStart, Server, mps_environment
from toolkit.lease.fields import DamagedDocument, Fields

MEANT_FOR = (
    "TensorFlow and Keras programs, unchanged, with the user's ordinary TensorFlow; `toolkit engine build tensorflow` "
    "makes it. Beside another engine (`remoting_engine_tensorflow_artifact`)"
)
HOLDS_PARTS = "memory, by TensorFlow's own limit, one program at a time; or MIG (`remoting_server_enforcement: mig`)"
RUNS_KERNELS = True
RUNS_DRIVER_API = False
RUNS_RUNTIME = False
RUNS_FRAMEWORKS: tuple[str, ...] = ("tensorflow",)
TRANSPORTS = ("tcp",)
#: A program's default device is one server.
MAX_SERVERS: int | None = 1
#: Measured on a processor: the one ahead 330 MiB with TensorFlow 2.21, a session as much and what its program holds.
#: CUDA's libraries take host memory for each session, which was not measured.
HOST_MEMORY_MIB = 6144
#: 16 sessions; TensorFlow's threads are several times as many as processors.
TASKS = 8192
#: It imports TensorFlow first, from a disk that may be cold.
STARTS_S = 90.0
#: A part has one session at a time.
HOLDS_MEMORY_OF: Literal["lease"] = "lease"
SECRET_VARIABLE = ""
MIB = 1 << 20
#: Beside `current`, written by role remoting_server: which Python has the server's TensorFlow.
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
        said.append("its TensorFlow computes on the server's processor: real results, no GPU's speed")
    if any(not device.whole for device in start.devices):
        said.append("one TensorFlow program of the lease runs at a time, which holds it to its part")
    if any(not d.whole and not d.mig for d in start.devices) and start.mps_pipe is None:
        said.append("the part holds for memory; computing is not limited")
    return said


def python_of(engine_dir: Path) -> Path:
    """The Python that has the server's TensorFlow. LeaseError where there is none."""
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
        raise LeaseError(f"{python} is not there, and the engine tensorflow runs by its TensorFlow; run site.yml")
    return python


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices, the limit, the token and the clients of the lease."""
    limits = [d.limit_mib for d in start.devices if d.limit_mib is not None]
    emulated = any(d.emulated for d in start.devices)
    context = max(d.context_bytes for d in start.devices)
    argv = [
        str(python_of(start.engine_dir)),
        "-I",  # nothing of a folder or a variable that is not the engine's
        str(start.engine_dir / "bin" / "elastic-ai-tfserver"),
        *("--bind", start.address),
        *("--port", str(start.port)),
        *("--port-file", str(start.port_file)),
        *("--token-file", str(start.token_file)),
        *("--allow", ",".join(start.clients)),
        *("--report-fd", "1"),
        *("--device", "cpu" if emulated else "cuda", "--devices", str(len(start.devices))),
        *(["--memory-limit", str(min(limits) * MIB), "--context-bytes", str(context)] if limits else []),
    ]
    visible = ",".join(d.uuid for d in start.devices)
    return EngineCommand(tuple(argv), {"CUDA_VISIBLE_DEVICES": visible, **mps_environment(start)}, tells_port=True)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """The server, its token in a file, and what `import tensorflow` finds it by. LeaseError for several servers."""
    if len(servers) != 1:
        raise LeaseError(f"the engine tensorflow gives a program the GPUs of one server, and these are {len(servers)}")
    tokens, server = secret(folder), servers[0]
    with os.fdopen(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(f"{server.token}\n")
    before = {name: os.environ.get(name, "") for name in ("PYTHONPATH", "LD_PRELOAD")}
    ours = {"PYTHONPATH": f"{engine_dir}/python", "LD_PRELOAD": f"{engine_dir}/lib/libelastic_ai_inward.so"}
    return {
        "ELASTIC_AI_TENSORFLOW_SERVERS": f"{server.address}:{server.port}",
        "ELASTIC_AI_TOKEN_FILE": str(tokens),
        "CUDA_VISIBLE_DEVICES": "-1",  # a GPU of this machine must not slip in before them
        "no_grpc_proxy": "127.84.70.1,127.84.70.2",  # names that no proxy knows (engine/tensorflow)
        **{name: path + (f":{before[name]}" if before[name] else "") for name, path in ours.items()},
    }


def secret(folder: Path) -> Path:
    """One line."""
    return folder / "tokens"
