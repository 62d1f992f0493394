"""The NVIDIA driver of a node: the module that the kernel has loaded, and its libraries."""

from __future__ import annotations

from pathlib import PurePosixPath

from validation.model.base import Model
from validation.model.facts import Count, Name

COMPAT = "compat"
"""Folder of CUDA's forward compatibility (packages cuda-compat-*, /usr/local/cuda/compat and what is below it)."""
COMPAT_NAMES = ("libcuda", "libcudadebugger", "libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libnvidia-gpucomp",
                "libnvidia-tileiras")  # fmt: skip
"""What these packages have: CUDA's user mode alone, which runs on the kernel module of an earlier branch."""


def forward(path: str) -> bool:
    """Whether a library is one of CUDA's forward compatibility."""
    where = PurePosixPath(path)
    return COMPAT in where.parent.parts and where.name.partition(".so")[0] in COMPAT_NAMES


class DriverModule(Model):
    """The driver's kernel module that is loaded. `open`: one of the open kernel modules."""

    version: Name
    open: bool


class DriverFile(Model):
    """A library's file, links followed. `bytes` None: a link that leads nowhere. `version` "": its name tells none."""

    path: Name
    bytes: Count | None
    version: str = ""


class LoadedLibrary(Model):
    """A library that was loaded by that name; `fault`: why it could not be. `emulated`: of the lab's devices."""

    name: Name
    fault: str = ""
    path: str = ""
    version: str = ""
    emulated: bool = False


class DriverLibraries(Model):
    """The driver's libraries in the loader's folders, and what came of loading those that compute programs need."""

    files: tuple[DriverFile, ...]
    loaded: tuple[LoadedLibrary, ...]


class Gpudirect(Model):
    """What GPUDirect RDMA stands on in the kernel. `peermem`: the peer-memory module that is loaded, "" without one.

    The kernel's options are None where it does not tell them.
    """

    peermem: str
    p2pdma: bool | None = None
    move_notify: bool | None = None
