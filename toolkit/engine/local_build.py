"""Engines for one machine by itself, built once for each source: the reference engine's server, client library and
relay; the engine torch for a PyTorch that is there."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from toolkit.engine import torch_build
from toolkit.engine.build import PROTOCOL, SOURCES, EngineInfo, compile_engine, missing_tools, source_hash
from toolkit.errors import BuildError
from validation.base.files import cache_folder, ours
from validation.base.temporary import room

RELAY = SOURCES / "relay.c"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")
PROGRAMS = ("engine.json", "bin/elastic-ai-refserver", "bin/elastic-ai-relay", "lib/libcuda.so.1")
KEPT = 3  # builds that stay in the cache: a run that is resumed has its own


def compile_relay(folder: Path) -> Path:
    """The relay (relay.c) in `folder`. BuildError where it cannot be compiled."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "elastic-ai-relay"
    try:
        done = subprocess.run(
            ["gcc", *FLAGS, "-o", str(target), str(RELAY)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as fault:
        raise BuildError(missing_tools() or str(fault)) from fault
    if done.returncode:
        raise BuildError(missing_tools() or f"gcc failed for {target.name}: {done.stderr.strip()}")
    return target


def programs() -> Path:
    """Folder with PROGRAMS of these sources, in this user's cache: built where it is not there.

    BuildError where it cannot be built, or nothing can be kept.
    """
    digest = hashlib.sha256(f"{source_hash()}{FLAGS}".encode() + RELAY.read_bytes()).hexdigest()[:16]
    return _cached("engine", digest, PROGRAMS, _build)


def torch_programs(python: str) -> Path:
    """The same of the engine torch, for the PyTorch of that Python: the first time it takes minutes."""
    torch = torch_build.ask(python)
    release = torch_build.default_release()
    names = ["engine.json", f"bin/{torch_build.LAUNCHER}", f"lib/{torch_build.OPERATORS}"]
    names += [f"lib/{library}-{torch.minor}.so" for library in torch_build.LIBRARIES]

    def build(folder: Path) -> None:
        torch_build.build_folder(folder, [torch], release)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700 if path.is_dir() else path.stat().st_mode & 0o755)

    digest = hashlib.sha256(repr([release, torch.version, torch.git]).encode()).hexdigest()[:16]
    return _cached("engine-torch-here", digest, names, build)


def _cached(name: str, digest: str, names: Sequence[str], build: Callable[[Path], None]) -> Path:
    try:
        above = cache_folder(name)
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _kept(above / digest, names, build)
    except (OSError, RuntimeError) as fault:
        raise BuildError(f"the engine cannot be kept in this user's cache: {fault}; set XDG_CACHE_HOME") from fault


def _kept(folder: Path, names: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The same in this folder. OSError where it cannot be written."""
    if _whole(folder, names):
        folder.touch()
        return folder
    with room("eai-near", folder.parent) as scratch:
        made = scratch / folder.name
        build(made)
        try:
            shutil.rmtree(folder, ignore_errors=True)
            made.replace(folder)
        except OSError:
            if not _whole(folder, names):  # another command was faster
                raise
    for old in sorted(folder.parent.glob("[0-9a-f]" * len(folder.name)), key=os.path.getmtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _whole(folder: Path, names: Sequence[str]) -> bool:
    """Whether all is there, and nobody but this user can have written it."""
    try:
        return ours(folder, *(folder / name for name in names))
    except OSError:
        return False


def _build(folder: Path) -> None:
    release = f"here-{folder.name}"
    compile_engine(folder, release)
    compile_relay(folder / "bin")
    info = EngineInfo("reference", release, PROTOCOL, "", platform.machine())
    (folder / "engine.json").write_text(json.dumps(asdict(info)) + "\n")
    for path in (folder, *(folder / name for name in PROGRAMS)):
        path.chmod(0o700)
