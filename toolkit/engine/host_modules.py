"""Kernels for emulated devices: host modules made by g++ from the sources that nvcc made the committed PTX from.

`NAME.cu` includes `engine/kernels/kernel.h`, and `NAME.ptx` beside it is made of it by `tools/make_ptx.py`. A device
finds a host module by the hash of the PTX: in comments behind the text (`archive`), or beside the device's
libcuda.so.1 (`compile_modules`).
"""

from __future__ import annotations

import base64
import platform
import shutil
import subprocess
from pathlib import Path

from toolkit.errors import BuildError
from validation.base import project
from validation.base.temporary import room

#: The header, and the kernels of tests and probes.
KERNELS = project.ROOT / "engine/kernels"
#: Programs that bring kernels of their own, for any CUDA driver: an emulated device runs those too.
PROGRAMS = (project.CODE / "toolkit/lease/programs/kernels",)
VERSION = 1  # HOST_MODULE_VERSION in devices/host_module.h
FLAGS = (
    "-std=c++20", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-fno-exceptions",
    "-fno-rtti", "-fno-gnu-unique", "-ffp-contract=off", "-Wl,-z,defs", "-Wl,--build-id=none",
)  # fmt: skip
LINE = 76


def lacks_compiler() -> str:
    """What the machine lacks for host modules, as one sentence; "" when it has everything."""
    return "" if shutil.which("g++") else "missing packages: g++; install them with: apt-get install g++"


def text_hash(data: bytes) -> int:
    """FNV-1a of 64 bits (draft-eastlake-fnv), as in devices/host_module.h."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def sources() -> list[Path]:
    """Sources that have their PTX beside them."""
    paths = [path for folder in (KERNELS, *PROGRAMS) for path in sorted(folder.glob("*.cu"))]
    return [path for path in paths if path.with_suffix(".ptx").is_file()]


def compile_module(source: Path, ptx: bytes, target: Path) -> None:
    """The host module of a source, for devices that are given that PTX. Raises BuildError."""
    command = ["gcc", *FLAGS, f"-I{KERNELS}", f"-DPTX_HASH={text_hash(ptx):#x}ull"]
    # gcc, which adds no libstdc++: nothing of that is needed
    command += ["-x", "c++", str(source), "-x", "none", "-o", str(target), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        raise BuildError(lacks_compiler() or str(e)) from e
    if done.returncode:
        raise BuildError(f"g++ failed for {source.name}: {done.stderr.strip()}")


def compile_modules(folder: Path) -> list[Path]:
    """The host modules of all sources in `folder`, under the names by which a device there finds them."""
    made = []
    for source in sources():
        ptx = source.with_suffix(".ptx").read_bytes()
        made.append(folder / f"elastic-ai-kernels-{text_hash(ptx):016x}.so")
        compile_module(source, ptx, made[-1])
    return made


def archive(source: Path, ptx: bytes) -> bytes:
    """PTX with its host module in comments behind it: any CUDA driver takes the one, an emulated device the other.

    The PTX is that of the source. Raises BuildError.
    """
    text = ptx if ptx.endswith(b"\n") else ptx + b"\n"
    with room("eai-kernels") as scratch:
        compile_module(source, text, scratch / "module.so")
        module = (scratch / "module.so").read_bytes()
    digits = base64.b64encode(module).decode()
    lines = [f"//.elastic-ai-host {VERSION} {platform.machine()} {len(module)} {text_hash(module):x}"]
    lines += [f"//{digits[at : at + LINE]}" for at in range(0, len(digits), LINE)]
    return text + "\n".join([*lines, "//.elastic-ai-host-end", ""]).encode()
