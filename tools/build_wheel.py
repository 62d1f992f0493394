#!/usr/bin/env python3
"""Pack the wheel that goes to nodes, once for each state of its sources.

It has the packages `toolkit` and `validation`, for nodes need no roles, and of NVIDIA's binding of NVML the file that
this Python has, with its licence, for nodes have no packages of Python. It is packed from the files that are here, so
that an installed toolkit makes the same of itself, byte for byte, as the checkout that its own wheel was built from.

Prints one JSON object: {"changed": bool, "wheel": path, "sha256": hex, "sources": hex}. The wheel is kept in the cache
under the hash of its sources, so that a second call with the same sources packs nothing and answers the same. With
--check nothing is packed; "wheel" and "sha256" are then empty where the cache has none.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

#: A checkout, the archive of the collection, or the collection that a wheel has brought.
ROOT = Path(__file__).resolve().parent.parent
#: Where the packages are: as plugins/plugin_utils/project.py says, which not every Python can import.
CODE = ROOT if (ROOT / "validation").is_dir() else ROOT.parents[2]
PACKAGES = ("toolkit", "validation")
BINDING = "validation/nvml"
NOTE = f"{BINDING}/pynvml.txt"
NAMED = ("pyproject.toml", "LICENSE", "NOTICE")  # beside the packages: the version, and what has to go with a copy
WHEN = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can state


class Unpackable(Exception):
    """The files that are here make no wheel."""


def sources() -> dict[str, bytes]:
    """Every file that goes into the wheel or decides what is in it, by its name, in a fixed order."""
    files = {name: (ROOT / name).read_bytes() for name in NAMED if (ROOT / name).is_file()}
    for package in PACKAGES:
        for path in sorted((CODE / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                files[path.relative_to(CODE).as_posix()] = path.read_bytes()
    if not files.keys() - {*NAMED}:
        raise Unpackable(f"{CODE}: no packages {' and '.join(PACKAGES)}")
    return {**files, **binding()}


def binding() -> dict[str, bytes]:
    """NVIDIA's binding of NVML, and the note with its version and its licence."""
    path = CODE / BINDING / "binding.py"
    spec = importlib.util.spec_from_file_location("binding", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        file, note = module.carried(ROOT / "pyproject.toml")
    except module.Unusable as fault:
        raise Unpackable(str(fault)) from None
    return {f"{BINDING}/{module.FILE}": file.read_bytes(), NOTE: note.encode()}


def hash_of(files: dict[str, bytes]) -> str:
    """One sha256 over names and contents, and over how they are packed."""
    total = hashlib.sha256(Path(__file__).read_bytes())
    for name, data in files.items():
        total.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return total.hexdigest()


def project(key: str) -> str:
    """A line `key = "value"` of pyproject.toml."""
    path = ROOT / "pyproject.toml"
    try:
        found = re.search(rf'^{key} = "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError as fault:
        raise Unpackable(f"{path}: {fault.strerror}") from fault
    if found is None:
        raise Unpackable(f"{path}: no line {key} = ")
    return found[1]


def contents(files: dict[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """The wheel's name, and what is in it by name: the packages, and the files by which pip knows what it installs."""
    version = project("version")
    name = project("name").replace("-", "_")
    info = f"{name}-{version}.dist-info"
    inside = {one: data for one, data in files.items() if one not in NAMED}
    metadata = f"Metadata-Version: 2.1\nName: {project('name')}\nVersion: {version}\n"
    inside[f"{info}/METADATA"] = metadata.encode()
    wheel = "Wheel-Version: 1.0\nGenerator: tools/build_wheel.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    inside[f"{info}/WHEEL"] = wheel.encode()
    for one in ("LICENSE", "NOTICE"):
        if one in files:
            inside[f"{info}/licenses/{one}"] = files[one]
    inside[f"{info}/licenses/{Path(NOTE).name}"] = files[NOTE]
    lines = [f"{one},sha256={_digest(data)},{len(data)}" for one, data in inside.items()]
    inside[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    return f"{name}-{version}-py3-none-any.whl", inside


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def pack(files: dict[str, bytes], folder: Path) -> None:
    """Write the wheel; fill `folder` whole."""
    name, inside = contents(files)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    with zipfile.ZipFile(partial / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, data in inside.items():
            entry = zipfile.ZipInfo(one, WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, data)
    partial.chmod(0o755)
    try:
        partial.rename(folder)
    except OSError:  # another call has packed the same meanwhile
        shutil.rmtree(partial)
        if not folder.is_dir():
            raise


def main() -> int:
    """Answer with the wheel of the present sources."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps packed wheels")
    parser.add_argument("--check", action="store_true", help="pack nothing, only tell")
    options = parser.parse_args()
    os.umask(0o022)
    try:
        files = sources()
        state = hash_of(files)
        folder = options.cache.expanduser() / f"elastic-ai-toolkit-{state[:16]}"
        changed = not any(folder.glob("*.whl"))
        if changed and not options.check:
            pack(files, folder)
    except (OSError, Unpackable) as error:
        print(f"error: the wheel for the nodes cannot be packed: {error}", file=sys.stderr)
        return 1
    wheel = next(iter(folder.glob("*.whl")), None)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest() if wheel else ""
    print(json.dumps({"changed": changed, "wheel": str(wheel or ""), "sha256": sha256, "sources": state}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
