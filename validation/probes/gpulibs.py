"""Libraries of the NVIDIA driver: whole, loadable, of which version. A program of its own: a broken one ends it alone.

The files are looked for in the loader's folders, for `ldconfig` leaves out what is empty or no library. What compute
programs ask for is loaded by its name, as they do it; other libraries need those of a display.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
LD_CONFIG = Path("/etc/ld.so.conf.d")
NEEDED = ("libcuda.so.1", "libnvidia-ml.so.1")
LOADED = (*NEEDED, "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-cfg.so.1")
#: of the driver by their names, but for those of the container toolkit and of EGL, which have releases of their own
OURS = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvidia-(?!container|egl-)[\w-]+)\.so(\.[\d.]+)?")
VERSION = re.compile(r"\.so\.(\d{3,}\.[\d.]*\d)$")
EMULATED = "elasticAiEmulated"  # what libraries of the lab's emulated devices export
MODULE = Path("/proc/driver/nvidia/version")


def folders(config: Path = LD_CONFIG) -> list[Path]:
    """Where the loader looks: the usual folders, and those of its configuration."""
    more = [
        line.strip() for path in sorted(config.glob("*.conf")) for line in path.read_text(errors="replace").splitlines()
    ]
    found = [Path(name) for name in (*FOLDERS, *more) if name.startswith("/")]
    return list({folder.resolve(): None for folder in found if folder.is_dir()})


def files(where: list[Path]) -> list[dict[str, Any]]:
    """The driver's libraries in these folders, each file once; a link that leads nowhere has no size."""
    found: dict[Path, dict[str, Any]] = {}
    for folder in where:
        for path in sorted(folder.iterdir()):
            if OURS.fullmatch(path.name):
                real = path.resolve()
                version = VERSION.search(real.name)
                size = real.stat().st_size if real.is_file() else None
                found[real] = {"path": str(real), "bytes": size, "version": version[1] if version else ""}
    return list(found.values())


def load(name: str) -> dict[str, Any]:
    """A library, loaded by that name: `fault` says why it could not be, `path` and `version` what was taken."""
    try:
        library = ctypes.CDLL(name)
    except OSError as fault:
        return {"name": name, "fault": str(fault), "path": "", "version": "", "emulated": False}
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    mapped = {line.split(maxsplit=5)[-1] for line in maps if "/" in line}
    stem = name.partition(".so")[0]
    path = next((each for each in sorted(mapped) if Path(each).name.startswith(f"{stem}.so")), "")
    version = VERSION.search(path)
    emulated = hasattr(library, EMULATED)
    return {"name": name, "fault": "", "path": path, "version": version[1] if version else "", "emulated": emulated}


def module(text: str) -> dict[str, Any] | None:
    """The driver's kernel module that is loaded, as DriverModule, from /proc/driver/nvidia/version."""
    found = re.search(r"^NVRM version:.*?(\d{3,}\.[\d.]*\d)\b", text, re.MULTILINE)
    return {"version": found[1], "open": "Open Kernel Module" in text} if found else None


def collect(where: list[Path]) -> dict[str, Any]:
    """As DriverLibraries."""
    there = files(where)
    names = {Path(one["path"]).name.partition(".so")[0] for one in there}
    wanted = [name for name in LOADED if name in NEEDED or name.partition(".so")[0] in names]
    return {"files": there, "loaded": [load(name) for name in wanted]}


if __name__ == "__main__":
    print(json.dumps(collect([Path(name) for name in sys.argv[1:]] or folders())))
