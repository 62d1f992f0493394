"""Memory of GPUs: zero at hand-out, overwritten at the end, one limit for all sessions (cuda_memory.c).

The library has to be there before torch's own are: it is preloaded, by starting this program once more. Without it no
server of a GPU starts.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys

from elastic_ai_torchserver import LIB, fail

LIBRARY = "libelastic_ai_cuda_memory.so"
#: Torch's settings of its allocator: the first that is set holds.
SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
#: Of these, what the library counts and overwrites by.
REQUIRED = {"backend": "native", "expandable_segments": "False"}
#: What LD_PRELOAD was before, for programs that the server starts; and the sign that this one was started anew.
BEFORE = "ELASTIC_AI_TORCHSERVER_PRELOAD"


def preload() -> None:
    """Starts this program anew with the library before all others, or goes on where it is so.

    Ends with a sentence where it cannot be.
    """
    path, before = LIB / LIBRARY, os.environ.pop(BEFORE, None)
    if before is None:
        if not path.is_file():
            fail(f"{path} is not there, and without it no memory of a GPU is overwritten between sessions; install the "
                 "engine again", 1)  # fmt: skip
        given = os.environ.get("LD_PRELOAD", "")
        words = {BEFORE: given, "LD_PRELOAD": f"{path}:{given}" if given else str(path)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **words})
    if before:
        os.environ["LD_PRELOAD"] = before
    else:
        os.environ.pop("LD_PRELOAD", None)
    if not hasattr(ctypes.CDLL(None), "eai_memory_make"):
        fail(f"{path} cannot be preloaded (its path has a space or a colon, or it is for another machine), and without "
             "it no memory of a GPU is overwritten between sessions", 1)  # fmt: skip


def set_allocator() -> None:
    """Torch takes memory by the functions that the library stands in front of, whatever its default is. Ends with a
    sentence where the environment says otherwise."""
    names = [name for name in SETTINGS if name in os.environ] or SETTINGS[-1:]
    for name in names:
        given = os.environ.get(name, "")
        for key, value in re.findall(r"(\w+):(\w+)", re.sub(r"\s", "", given)):
            if key in REQUIRED and value.lower() != REQUIRED[key].lower():
                fail(f"{name}: {key}:{value} takes memory of the GPU where it is neither counted nor overwritten; "
                     "leave it out of the server's environment")  # fmt: skip
        parts = [given.strip().rstrip(",")] if given.strip() else []
        os.environ[name] = ",".join([*parts, *(f"{key}:{value}" for key, value in REQUIRED.items())])


class DeviceMemory:
    """The account that parent and children share."""

    def __init__(self, limit: int, context: int) -> None:
        """By the parent. limit: bytes of each device, 0: none; context: what a session's context takes of that."""
        self.library = ctypes.CDLL(None)
        self.library.eai_memory_bytes.restype = ctypes.c_size_t
        self.library.eai_memory_make.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
        for name in ("eai_memory_use", "eai_memory_clear"):
            getattr(self.library, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.library.eai_memory_used.argtypes = [ctypes.c_void_p, ctypes.c_int]
        for name in ("eai_memory_used", "eai_memory_held", "eai_memory_end"):
            getattr(self.library, name).restype = ctypes.c_uint64
        self.context = context
        self.shared = mmap.mmap(-1, self.library.eai_memory_bytes())
        self.account = ctypes.addressof(ctypes.c_char.from_buffer(self.shared))
        self.library.eai_memory_make(self.account, limit, context)

    def use(self, session: int) -> None:
        """By a child, before it opens a device."""
        self.library.eai_memory_use(self.account, session)

    def clear(self, session: int) -> None:
        """By the parent, when a child has ended."""
        self.library.eai_memory_clear(self.account, session)

    def used(self, device: int) -> int:
        """Bytes of a device that all sessions have."""
        return int(self.library.eai_memory_used(self.account, device))

    def is_counted(self, device: int) -> bool:
        """Whether memory that this child has been given was counted."""
        return int(self.library.eai_memory_held(device)) > self.context

    def end(self) -> int:
        """By a child, at its end: overwrites what it has. How many bytes it could not."""
        return int(self.library.eai_memory_end())
