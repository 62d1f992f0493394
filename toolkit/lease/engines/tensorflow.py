"""The toolkit's engine for TensorFlow: an adapter to TensorFlow's own distributed runtime, and no protocol.

Its server is a door that asks for the lease's token, and behind it a TensorFlow server for each session, which reaches
no file and no address (engine/tensorflow). Its client is read by Python at the start of the user's program, whose
TensorFlow has to be of the server's minor release. Where a lease's devices are emulated, the server's TensorFlow
computes on the processor, so that real programs have real results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError, framework_engine
from toolkit.lease.engines import EngineCommand, EngineStart, Server
from toolkit.lease.framework_engine import keeps_part as keeps_part
from toolkit.lease.framework_engine import secret as secret

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


def notes(start: EngineStart) -> list[str]:
    """What its owner ought to know."""
    said = []
    if any(device.emulated for device in start.devices):
        said.append("its TensorFlow computes on the server's processor: real results, no GPU's speed")
    if any(not device.whole for device in start.devices):
        said.append("one TensorFlow program of the lease runs at a time, which holds it to its part")
    return [*said, *framework_engine.computing_notes(start)]


def command(start: EngineStart) -> EngineCommand:
    """The server with the devices of the lease."""
    device = "cpu" if any(d.emulated for d in start.devices) else "cuda"
    python = framework_engine.python_of(start.engine_dir, "tensorflow", "TensorFlow")
    more = ("--device", device, "--devices", str(len(start.devices)))
    return framework_engine.command(start, python, "elastic-ai-tfserver", more)


def client(engine_dir: Path, servers: Sequence[Server], folder: Path) -> dict[str, str]:
    """The server, its token in a file, and what `import tensorflow` finds it by. LeaseError for several servers."""
    if len(servers) != 1:
        raise LeaseError(f"the engine tensorflow gives a program the GPUs of one server, and these are {len(servers)}")
    ours = {"PYTHONPATH": f"{engine_dir}/python", "LD_PRELOAD": f"{engine_dir}/lib/libelastic_ai_inward.so"}
    return {
        "ELASTIC_AI_TENSORFLOW_SERVERS": f"{servers[0].address}:{servers[0].port}",
        "ELASTIC_AI_TOKEN_FILE": framework_engine.write_tokens(folder, [servers[0].token]),
        "CUDA_VISIBLE_DEVICES": "-1",  # a GPU of this machine must not slip in before them
        "no_grpc_proxy": "127.84.70.1,127.84.70.2",  # names that no proxy knows (engine/tensorflow)
        **framework_engine.before_others(ours),
    }
