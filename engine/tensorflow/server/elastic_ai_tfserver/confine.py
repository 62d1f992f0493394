"""What a process may still reach from now on (Landlock, Linux 5.13): its own folder, and to read what it is made of.

It holds for all that it starts, and ends with none of them. Where the kernel knows it (6.7) it also takes away all TCP,
and (6.12) signals to others and sockets without a file.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

#: The same numbers on all architectures.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38
#: linux/landlock.h
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
#: What each version of it knows.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
_TCP, _SCOPES = 3, 3
#: Read, so that the C library, Python, TensorFlow and the driver find what they are made of; no accounts, no secrets.
SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/nvidia",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self", "/proc/sys", "/proc/driver", "/proc/devices",
    "/proc/modules", "/proc/filesystems", "/proc/version", "/sys/devices", "/sys/bus", "/sys/class", "/sys/module",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/nvidia-caps")


class NotConfined(Exception):
    """The kernel cannot do it; the text is a sentence."""


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    done = int(library.syscall(number, *arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def version() -> int:
    """Of Landlock in this kernel. NotConfined where there is none."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), 1)
    except OSError as fault:
        raise NotConfined(
            f"this kernel cannot keep TensorFlow's server from the machine's files (Landlock: {fault.strerror}); it "
            "needs Linux 5.13 or newer with landlock among the modules of security (lsm=)"
        ) from None


def own() -> list[str]:
    """Where this Python, and what it imports, is."""
    return [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent), *filter(None, sys.path)]


def devices() -> list[str]:
    """Device files of GPUs; which of them it may open is the unit's to say."""
    return [*DEVICES, *(str(path) for path in sorted(Path("/dev").glob("nvidia*")))]


def confine(readable: Iterable[str], writable: Iterable[str]) -> None:
    """This process and all that it starts reach these files and folders, and no others. NotConfined where that cannot
    be."""
    known = version()
    files = _KNOWN[min(known, 3)]
    rules = struct.pack("<QQQ", files, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    rules = rules[: 8 if known < 4 else 16 if known < 6 else 24]
    try:
        handle = _call(_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
        for path in readable:
            _allow(handle, path, files & (_EXECUTE | _READ_FILE | _READ_DIR))
        for path in writable:
            _allow(handle, path, files & ~_EXECUTE)
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        _call(_RESTRICT, handle, 0)
        os.close(handle)
    except OSError as fault:
        raise NotConfined(f"TensorFlow's server cannot be kept from the machine's files: {fault.strerror}") from None


def _allow(handle: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # it is not there, and so cannot be reached either
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= _OF_FILES
        _call(_ADD, handle, 1, struct.pack("<Qi", access, opened), 0)
    finally:
        os.close(opened)
