"""NVIDIA's own binding of NVML, the file pynvml.py of the package nvidia-ml-py: where it is, and how it is loaded.

The package is installed with the toolkit. Nodes have no such package: whatever goes there (the wheel of the probes, the
modules of leases, the exporter) gets that one file of the controller's Python, as it is, and beside it a note with
its version and its licence. Both lie beside this file then, and are in no repository.

Loaded from its path under a name of its own: a program that runs here too, such as torch, may have another pynvml.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

PACKAGE, FILE, NOTE = "nvidia-ml-py", "pynvml.py", "pynvml.txt"
TOLD = "ELASTIC_AI_PYNVML"
"""The file, told by a toolkit that measures its own machine: torch's Python there has neither the package nor the
copy."""
NAME = "validation.nvml.pynvml"
_LICENCE = "Redistribution and use in source and binary forms"
_LOCK = threading.Lock()


class Unusable(Exception):
    """There is no binding, or not one that will do; in words."""


def installed() -> tuple[Path, str]:
    """The file of the package that this Python has, and the package's version; Unusable where it has none."""
    from importlib import metadata  # takes as long as all the rest, and nodes need none of it

    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise Unusable(f"{sys.executable} has no {PACKAGE}: {sys.executable} -m pip install {PACKAGE}") from None
    return Path(str(package.locate_file(FILE))), package.version


def carried(pyproject: Path) -> tuple[Path, str]:
    """What a controller puts on nodes: the file, and the note that goes with it. Unusable where it has none that will
    do: `pyproject` says which versions."""
    path, version = installed()
    bounds = re.search(rf'"{PACKAGE}>=([\d.]+),<(\d+)"', pyproject.read_text(encoding="utf-8"))
    if bounds is None:
        raise Unusable(f"{pyproject}: no line of {PACKAGE} with its versions")
    if not _numbers(bounds[1]) <= _numbers(version) < _numbers(bounds[2]):
        wanted = f"{PACKAGE}>={bounds[1]},<{bounds[2]}"
        raise Unusable(f"{sys.executable} has {PACKAGE} {version}: {sys.executable} -m pip install '{wanted}'")
    try:
        head = re.match(r"(?:#.*\n)+", path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise Unusable(f"{path} cannot be read: {fault}") from None
    if head is None or _LICENCE not in head[0]:
        raise Unusable(f"{path} has no licence at its head, with which alone it may be copied")
    licence = "\n".join(line.lstrip("#").strip() for line in head[0].splitlines()).strip()
    return path, f"{FILE} is the one of {PACKAGE} {version}, unchanged. Its licence:\n\n{licence}\n"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def found() -> Path:
    """The file that is loaded: the copy beside this one, else the one that was told, else the installed package's."""
    beside = Path(__file__).with_name(FILE)
    if beside.is_file():
        return beside
    return Path(os.environ[TOLD]) if os.environ.get(TOLD) else installed()[0]


def told() -> dict[str, str]:
    """What programs of another Python on this machine need in their environment to find the file; {} where there is
    none, or each finds it by itself."""
    try:
        path = found()
    except Unusable:
        return {}
    return {} if path == Path(__file__).with_name(FILE) else {TOLD: str(path)}


def load(library: Any) -> Any:
    """The binding, whose functions ask this library from now on; Unusable where there is none.

    It loads libnvidia-ml.so.1 by that name alone; the library of a lab's emulated devices or of a test may have
    another. Of the names that its functions are remembered by none is of the library before.
    """
    with _LOCK:
        module: Any = sys.modules.get(NAME) or _loaded(found())
        if module.nvmlLib is not library:
            module.nvmlLib = library
            module._nvmlGetFunctionPointer_cache.clear()
        return module


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise Unusable(f"{path} is no module of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        del sys.modules[NAME]
        raise Unusable(f"{path} cannot be loaded: {fault}") from None
    return module
