"""A child: the device, then the session, until its client goes."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_ai_torchserver import LIB, NAME, fail, release, verbs
from elastic_ai_torchserver.door import NO_DEVICE, NO_TRANSPORT, STARTING, VERSION, Waiting, message, refusal
from elastic_ai_torchserver.groups import Groups
from elastic_ai_torchserver.memory import LIBRARY, DeviceMemory

#: For benchmarks, with --device cpu: a call makes results of the right size and computes nothing; the name says so.
DO_NOTHING = "ELASTIC_AI_TORCH_OPERATORS_DO_NOTHING"
STARTING_S = 120  # a device that has not started by then does not


def load(given: argparse.Namespace, torch_version: str) -> ctypes.CDLL:
    """The C++ half for this torch, with its list of operators."""
    minor = ".".join(torch_version.split(".")[:2])
    path = Path(given.library or LIB / f"libelastic_ai_torchserver-{minor}.so")
    if not path.is_file():
        words = f"this engine is not built for PyTorch {torch_version}; use toolkit engine build torch"
        fail(f"{path} is not there: {words}", 1)
    library = ctypes.CDLL(str(path))
    library.eats_account_bytes.restype = ctypes.c_size_t
    library.eats_account_make.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.eats_serve.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double,
        ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    verbs.declare(library)
    if library.eats_wire_version() != VERSION:
        fail(f"{path} speaks another wire version than this launcher: install one release", 1)
    names = Path(given.operators or LIB / "torch-operators.txt")
    try:
        library.eats_operators(names.read_bytes(), given.device == "cpu")
    except OSError as fault:
        fail(f"{names}: {fault.strerror}; install the engine again", 1)
    return library


def serve(
    one: Waiting,
    row: int,
    given: argparse.Namespace,
    library: ctypes.CDLL,
    account: int,
    memory: DeviceMemory | None,
    report: Callable[..., None],
    groups: Groups,
) -> int:
    """The session; the child's exit status. memory: of GPUs, None where processors compute."""
    import torch

    connection = one.connection
    connection.setblocking(True)
    connection.sendall(message(STARTING, b""))
    end_by_signal(connection)
    signal.alarm(STARTING_S)
    if given.threads:
        torch.set_num_threads(given.threads)
    if memory:
        memory.use(row)
    try:
        try:
            devices = describe(torch, given)
            if memory:
                hold_memory(torch, memory)
        except Exception as fault:  # whatever a driver says
            connection.sendall(refusal(NO_DEVICE, why_not(torch, fault)))
            report(event="refused", peer=one.peer, why="no device")
            return 3
        carrier = None
        if one.transport == "verbs":
            carrier, without = verbs.take(library, connection.fileno(), one.peer, report)
            if carrier is None:
                if without:
                    words = f"verbs cannot be had there, and nothing else was asked for: {without}"
                    connection.sendall(refusal(NO_TRANSPORT, words))
                report(event="refused", peer=one.peer, why="no verbs")
                return 3
        signal.alarm(0)
        about = {"release": release(), "devices": devices, "threads": torch.get_num_threads(), "pid": os.getpid()}
        why = ctypes.create_string_buffer(512)
        library.eats_groups(groups.function)
        status = library.eats_serve(
            connection.fileno(), carrier, given.device == "cuda", len(devices), ctypes.c_void_p(account), row,
            ctypes.c_double(given.busy), given.like_cuda, torch.__version__.encode(), json.dumps(about).encode(), why,
            len(why),
        )  # fmt: skip
        if status:
            report(event="broken", peer=one.peer, op="", why=why.value.decode(errors="replace"))
        return int(status)
    finally:
        left = memory.end() if memory else 0
        if left:
            print(f"{NAME}: session of {one.peer}: {left} bytes could not be overwritten at its end", file=sys.stderr)


def why_not(torch: Any, fault: Exception) -> str:
    """Why a session has no device, for its user."""
    if isinstance(fault, getattr(torch, "OutOfMemoryError", ())):
        return ("no memory of the GPU is left for it: other programs of this lease use the whole part; "
                "end one of them, or lease a larger part")  # fmt: skip
    return f"the server's device does not start: {fault}"


def end_by_signal(connection: socket.socket) -> None:
    """SIGTERM ends a session as its client's going does, so that memory is overwritten. A thread, for the session is in
    C++, where no handler of Python's runs."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        os.read(read, 1)
        with suppress(OSError):  # the client was faster
            connection.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=wait, daemon=True).start()


def hold_memory(torch: Any, memory: DeviceMemory) -> None:
    """Takes some, as every session does at its beginning, and looks whether that was seen."""
    torch.empty(1, device="cuda:0")
    if not memory.is_counted(0):
        raise RuntimeError(f"this PyTorch takes memory past {LIBRARY}, so that it would not be overwritten")


def onednn(torch: Any) -> dict[str, object]:
    """Which short floats oneDNN takes on this processor: recurrent networks are computed by it where it does."""
    if not torch.backends.mkldnn.is_available():
        return {}
    asked = torch.ops.mkldnn
    return {"onednn_bf16": asked._is_mkldnn_bf16_supported(), "onednn_fp16": asked._is_mkldnn_fp16_supported()}


def describe(torch: Any, given: argparse.Namespace) -> list[dict[str, object]]:
    """The devices, as WELCOME tells them."""
    common = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
              "arch_list": torch.cuda.get_arch_list()}  # fmt: skip
    if given.device == "cuda" and torch.distributed.is_nccl_available():
        common["nccl"] = list(torch.cuda.nccl.version()[:3])
    if given.device == "cpu":
        what = "operators do nothing" if os.environ.get(DO_NOTHING) else "processors"
        memory = given.memory_limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        state = torch.get_rng_state().numel()
        takes = onednn(torch)
        return [
            {"name": f"Emulated GPU ({what})", "capability": [8, 0], "total_memory_bytes": memory,
             "multi_processor_count": os.cpu_count() or 1, "uuid": f"00000000-0000-0000-0000-{index:012x}",
             "rng_state_bytes": state, "emulated": True, "processor": True, **takes, **common}
            for index in range(given.devices)
        ]  # fmt: skip
    devices = []
    for index in range(torch.cuda.device_count()):
        told = torch.cuda.get_device_properties(index)
        devices.append(
            {"name": told.name, "capability": [told.major, told.minor],
             "total_memory_bytes": min(given.memory_limit or told.total_memory, told.total_memory),
             "multi_processor_count": told.multi_processor_count, "uuid": str(told.uuid), "warp_size": told.warp_size,
             "L2_cache_size": told.L2_cache_size,
             "max_threads_per_multi_processor": told.max_threads_per_multi_processor,
             "shared_memory_per_block": getattr(told, "shared_memory_per_block", 0),
             "shared_memory_per_block_optin": getattr(told, "shared_memory_per_block_optin", 0),
             "shared_memory_per_multiprocessor": getattr(told, "shared_memory_per_multiprocessor", 0),
             "regs_per_multiprocessor": getattr(told, "regs_per_multiprocessor", 0),
             "rng_state_bytes": torch.cuda.get_rng_state(index).numel(), "emulated": False, "processor": False,
             **common}
        )  # fmt: skip
    if not devices:
        raise RuntimeError("torch finds no CUDA device here")
    return devices
