"""A session by RDMA verbs: the port of the server's address, and the queue pair of a child (shared/verbs, in C).

What RDMA libraries have would not outlive a fork: the parent only looks, in a process of its own, and each child opens
the device by itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

#: A sentence (VERBS_WHY in verbs_port.h), or a device's name.
WORDS = 256


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    library.eats_verbs_check.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.eats_verbs_take.argtypes = [
        ctypes.c_int, ctypes.POINTER(ctypes.c_uint), ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    library.eats_verbs_take.restype = ctypes.c_void_p


def why_not(library: ctypes.CDLL, address: str) -> str:
    """Why clients of that address cannot have verbs, "" when they can."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = b"?"
        try:
            why = ctypes.create_string_buffer(WORDS)
            words = why.value if library.eats_verbs_check(address.encode(), why, len(why)) else b""
        finally:
            os.write(write, words)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        words = told.read()
    status = os.waitpid(pid, 0)[1]
    if status or words == b"?":
        return f"libibverbs ended the process that asked it for a port (status {status})"
    return words.decode(errors="replace")


def take(library: ctypes.CDLL, fd: int, peer: str, report: Callable[..., None]) -> tuple[int | None, str]:
    """The queue pair that carries this session from now on; None, and why not: "" where the client has gone."""
    port, words = ctypes.c_uint(), ctypes.create_string_buffer(WORDS)
    taken = library.eats_verbs_take(fd, ctypes.byref(port), words, len(words))
    text = words.value.decode(errors="replace")
    if taken:
        report(event="verbs", peer=peer, pid=os.getpid(), device=text, port=port.value)
        return taken, ""
    return None, text
