"""TensorFlow's own server for one session, confined; started ahead, so that a session need not wait for the import.

argv: JSON (folder, devices, device, memory_limit). It says a JSON line when TensorFlow is there, waits for a line, and
says another when its server listens. It ends with its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20
MOST_PATH = 107  # bytes of a socket's path


def say(**words: Any) -> None:
    """A line for the door."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def hold_memory(limit_bytes: int) -> None:
    """TensorFlow's tensors on the processor take so much memory, by the allocator that GPUs have; where more is asked
    for it says that it is out of memory. It is read when the first tensor is made.

    A limit of the process (RLIMIT_DATA) would be met by the stacks of its threads, and end it.
    """
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(max(limit_bytes // MIB, 1))


def config(tf: Any, given: dict[str, Any]) -> Any:
    """Of the server: a lease's part of each GPU, taken as it is needed."""
    made = tf.compat.v1.ConfigProto()
    if given["device"] == "cuda":
        made.gpu_options.allow_growth = True
        if given["memory_limit"]:
            for _ in range(given["devices"]):
                part = made.gpu_options.experimental.virtual_devices.add()
                part.memory_limit_mb.append(given["memory_limit"] / MIB)
    else:
        made.device_count["GPU"] = 0
    return made


def serve(given: dict[str, Any]) -> None:
    """Until its input ends."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from elastic_ai_tfserver import ADDRESS, CLIENT, PORT
    from elastic_ai_tfserver.confine import SYSTEM, NotConfined, confine, devices, own

    folder = Path(given["folder"])
    os.chdir(folder / "scratch")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        confine([*SYSTEM, *own(), str(Path(__file__).resolve().parent.parent)], [*devices(), str(folder)])
    except NotConfined as fault:
        say(fault=str(fault))
        return
    inward = getattr(ctypes.CDLL(None), "elastic_ai_inward", None)
    files = {"": "socket", ADDRESS: "socket", CLIENT: "client"}
    if inward is not None and len(str(folder / "client")) > MOST_PATH:
        say(fault=f"{folder}: its path is too long for a socket; give --scratch a shorter one")
        return
    if inward is None or any(inward(a.encode(), PORT, str(folder / files[a]).encode()) for a in files):
        say(fault="libelastic_ai_inward.so is not preloaded, so that TensorFlow's server would listen to everybody")
        return
    if given["device"] == "cpu" and given["memory_limit"]:
        hold_memory(given["memory_limit"])
    try:
        import tensorflow as tf
    except Exception as fault:  # whatever its import ends with
        say(fault=f"{sys.executable} has no TensorFlow that can be imported ({type(fault).__name__}: {fault})")
        return
    if given["device"] == "cuda":
        there = len(tf.config.list_physical_devices("GPU"))
        if there < given["devices"]:
            say(fault=f"TensorFlow {tf.__version__} of the server finds {there} of {given['devices']} GPUs: is it the "
                      "wheel with CUDA, and is the driver new enough for it?")  # fmt: skip
            return
    say(imported=tf.__version__)
    if not sys.stdin.readline():
        return
    try:
        server = tf.distribute.Server(
            {"worker": [f"{ADDRESS}:{PORT}"]}, job_name="worker", task_index=0, protocol="grpc",
            config=config(tf, given), start=True,
        )  # fmt: skip
    except Exception as fault:  # TensorFlow's own kinds of errors
        say(fault=f"TensorFlow's server did not start: {str(fault).splitlines()[0]}")
        return
    say(ready=server.target)
    sys.stdin.read()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's server has threads that never end
