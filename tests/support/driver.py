"""What a node says of a driver that is whole; constructed."""

from __future__ import annotations

from typing import Any

FOLDER = "/usr/lib/x86_64-linux-gnu"
NAMES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libnvidia-opencl")


def libraries(version: str) -> dict[str, Any]:
    """Its libraries, as DriverLibraries of validation.model.driver."""
    files = [{"path": f"{FOLDER}/{name}.so.{version}", "bytes": 1 << 20, "version": version} for name in NAMES]
    loaded = [
        {"name": f"{name}.so.1", "path": f"{FOLDER}/{name}.so.{version}", "version": version} for name in NAMES[:3]
    ]
    return {"files": files, "loaded": loaded}


def whole(version: str) -> dict[str, Any]:
    """The facts of such a driver."""
    kernel = {"peermem": "", "p2pdma": True, "move_notify": True}
    module = {"version": version, "open": True}
    return {"driver_module": module, "driver_libraries": libraries(version), "gpudirect": kernel}
