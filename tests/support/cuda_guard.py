"""A CUDA runtime without a GPU (fake_cudart/), and processes that take its memory with the engine's library before it.

kit = build(folder)
answer = kit.run("said(user.malloc(MIB))")         # in a Python with the library preloaded; guarded=False: without
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.engine import torch_build

SOURCES = Path(__file__).with_name("fake_cudart")
MIB = 1 << 20
#: Of each of its two devices. What stands behind is the fake's own account.
DEVICE_BYTES, ACCOUNT_BYTES, PAGE, MOST_PAGES = 8 * MIB, 65536, 65536, 4096
OLD = b"\xa5"

#: What a program has: `user`, the library that is linked to the runtime; `memory`, the launcher's account.
BEGINNING = """
import ctypes, json, os, signal, sys
MIB = 1 << 20
EVERYWHERE, USER, MODULES = sys.argv[1:4]
sys.path.insert(0, MODULES)
if EVERYWHERE:
    ctypes.CDLL(EVERYWHERE, ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(USER)
library.user_others.restype = ctypes.c_size_t
library.user_others.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for name in ("user_free", "user_free_host"):
    getattr(library, name).argtypes = [ctypes.c_void_p]
library.user_write.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
class user:
    free, write, wait, device, driver, other, others, free_host = (getattr(library, "user_" + name) for name in (
        "free", "write", "wait", "device", "driver", "other", "others", "free_host"))
    @staticmethod
    def malloc(bytes):
        "(error, address, bytes that are not zero)"
        data = ctypes.c_void_p()
        error = library.user_malloc(ctypes.byref(data), ctypes.c_size_t(bytes))
        return error, data.value, None if error else library.user_others(data, 0, bytes)
    @staticmethod
    def host(bytes, plain=0):
        data = ctypes.c_void_p()
        error = library.user_host(ctypes.byref(data), ctypes.c_size_t(bytes), plain)
        return error, data.value, None if error else library.user_others(data, 0, bytes)
    @staticmethod
    def info():
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        error = library.user_info(ctypes.byref(left), ctypes.byref(total))
        return error or (left.value, total.value)
def said(value):
    print(json.dumps(value), flush=True)
def account(limit, context=0):
    from elastic_ai_torchserver.memory import DeviceMemory
    return DeviceMemory(limit, context)
def child(run, memory=None, row=0):
    "What it said, once it has ended."
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            memory and memory.use(row)
            os.write(write, json.dumps(run()).encode())
        except BaseException as fault:
            os.write(write, json.dumps(repr(fault)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        answer = text.read()
    os.waitpid(pid, 0)
    return json.loads(answer or "null")
"""


@dataclass
class Kit:
    """What was built, and the device's memory."""

    cudart: Path
    user: Path
    guard: Path
    memory: Path

    def environment(self, guarded: bool = True, **more: str) -> dict[str, str]:
        """Of a program of the fake's."""
        preload = {"LD_PRELOAD": str(self.guard)} if guarded else {}
        kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        return {**kept, "FAKE_CUDART_MEMORY": str(self.memory), **preload, **more}

    def run(self, program: str, *, guarded: bool = True, everywhere: Path | None = None, **more: str) -> Any:
        """What the program said. everywhere: a runtime that was loaded before, with its names for all."""
        words = [str(everywhere or ""), str(self.user), str(torch_build.TORCH / "server")]
        done = subprocess.run(
            [sys.executable, "-c", BEGINNING + program, *words],
            env=self.environment(guarded, **more), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def clear(self) -> None:
        """A device on which everything that was ever handed out still is."""
        self.memory.write_bytes(OLD * (2 * DEVICE_BYTES) + bytes(ACCOUNT_BYTES))

    def not_old(self, device: int = 0) -> int:
        """Bytes of the device that are neither zero nor what was there before."""
        data = self.memory.read_bytes()[device * DEVICE_BYTES : (device + 1) * DEVICE_BYTES]
        return len(data) - data.count(OLD) - data.count(b"\0")

    def zeros(self, device: int = 0) -> int:
        """Bytes of the device that are zero."""
        return self.memory.read_bytes()[device * DEVICE_BYTES : (device + 1) * DEVICE_BYTES].count(b"\0")


def compile_c(target: Path, *words: str) -> Path:
    command = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        "-o",
        str(target),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def build(folder: Path, soname: str = "libcudart.so.13") -> Kit:
    """The fake with versioned names, as NVIDIA's has them; what is linked to it; the engine's library."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "cudart.map"
    script.write_text((SOURCES / "cudart.map").read_text().replace("VERSION", soname))
    cudart = compile_c(
        folder / soname, "-shared", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}",
        str(SOURCES / "cudart.c"),
    )  # fmt: skip
    linked = (str(SOURCES / "user.c"), f"-L{folder}", f"-l:{soname}", f"-Wl,-rpath,{folder}")
    user = compile_c(folder / "libuser.so", "-shared", *linked)
    compile_c(folder / "program", *linked)
    kit = Kit(cudart, user, torch_build.compile_cuda_memory(folder), folder / "memory")
    kit.clear()
    return kit
