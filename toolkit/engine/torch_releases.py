"""PyTorch's last releases, each in an environment of its own in this user's cache: what `toolkit engine build torch
--all` compiles against. They come from the package index that pip is configured for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from toolkit.engine.torch_build import OLDEST
from toolkit.errors import BuildError
from toolkit.loudness import progress
from validation.base.files import cache_folder

COUNT = 3


def _english(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program whose words are read: without translations."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
    )  # fmt: skip


def _pip(words: Sequence[str], what: str) -> str:
    done = _english([sys.executable, "-m", "pip", "--disable-pip-version-check", *words])
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise BuildError(f"{what}: pip: {last}; give the releases by --torch PYTHON instead")
    return done.stdout


def newest(versions: Sequence[str], count: int = COUNT) -> list[str]:
    """The newest version of each of the last minor releases, the newest first; none that is too old, or not final."""
    final = [tuple(int(n) for n in one.split(".")) for one in versions if re.fullmatch(r"\d+\.\d+\.\d+", one)]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for one in sorted(final, reverse=True):
        if one[:2] >= OLDEST:
            found.setdefault(one[:2], one)
    return [".".join(str(number) for number in one) for one in list(found.values())[:count]]


def last_releases() -> list[str]:
    """What the package index has of them. BuildError where it has none."""
    index = _pip(["index", "versions", "torch"], "--all")
    listed = re.search(r"^Available versions: (.*)$", index, re.MULTILINE)
    found = newest([one.strip().partition("+")[0] for one in listed[1].split(",")] if listed else [])
    if not found:
        least = ".".join(str(number) for number in OLDEST)
        raise BuildError(f"--all: the package index has no torch of {least} or newer; give --torch PYTHON instead")
    return found


def python_with(version: str) -> str:
    """A Python with that PyTorch, made where it is not there. BuildError where it cannot be."""
    try:
        folder = cache_folder("torch-releases") / f"{version}-{sys.version_info[0]}.{sys.version_info[1]}"
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as fault:
        raise BuildError(f"PyTorch cannot be kept in this user's cache: {fault}; set XDG_CACHE_HOME") from fault
    python, whole = folder / "bin/python", folder / "whole"
    if not whole.is_file():
        progress(f"torch {version}: installing it to build against (once)")
        shutil.rmtree(folder, ignore_errors=True)
        words = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        done = _english(words)
        if done.returncode:
            raise BuildError(f"--all: no environment for torch {version}: {done.stderr.strip() or done.stdout.strip()}")
        # Headers and libraries are wanted, and nothing is run: not what it needs besides, which is GiBs with CUDA.
        _pip(["--python", str(python), "install", "--quiet", "--no-deps", f"torch=={version}"], f"torch {version}")
        whole.touch()
    return str(python)


def pythons() -> list[str]:
    """A Python for each of the last releases, the oldest first."""
    return [python_with(version) for version in reversed(last_releases())]
