"""The reference engine for one machine by itself: server, client library and relay, built once for each source."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

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
    try:
        above = cache_folder("engine")
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _kept(above / digest)
    except (OSError, RuntimeError) as fault:
        raise BuildError(f"the engine cannot be kept in this user's cache: {fault}; set XDG_CACHE_HOME") from fault


def _kept(folder: Path) -> Path:
    """The same in this folder. OSError where it cannot be written."""
    if _whole(folder):
        folder.touch()
        return folder
    with room("eai-near", folder.parent) as scratch:
        made = scratch / folder.name
        _build(made, f"here-{folder.name}")
        try:
            shutil.rmtree(folder, ignore_errors=True)
            made.replace(folder)
        except OSError:
            if not _whole(folder):  # another command was faster
                raise
    for old in sorted(folder.parent.glob("[0-9a-f]" * len(folder.name)), key=os.path.getmtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _whole(folder: Path) -> bool:
    """Whether all is there, and nobody but this user can have written it."""
    try:
        return ours(folder, *(folder / name for name in PROGRAMS))
    except OSError:
        return False


def _build(folder: Path, release: str) -> None:
    compile_engine(folder, release)
    compile_relay(folder / "bin")
    info = EngineInfo("reference", release, PROTOCOL, "", platform.machine())
    (folder / "engine.json").write_text(json.dumps(asdict(info)) + "\n")
    for path in (folder, *(folder / name for name in PROGRAMS)):
        path.chmod(0o700)
