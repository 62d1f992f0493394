"""Checks a mirror: who signed it, and whether every file is the one that was signed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from toolkit.mirror import manifest
from toolkit.mirror.documents import PLAN, Package, Plan, size_words
from toolkit.mirror.room import sha256
from validation.base import bounded
from validation.base.counting import number_of

WORKERS = 2
_QUERIES = {
    ".deb": ["dpkg-deb", "--showformat=${Package}\t${Version}", "--show"],
    ".rpm": ["rpm", "--query", "--nosignature", "--nodigest", "--package", "--queryformat",
             "%{name}\t%{epochnum}:%{version}-%{release}"],
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """faults: one line each. files, size: what was read."""

    faults: tuple[str, ...]
    files: int
    size: int
    signature: str
    said: dict[str, str]


def verify(folder: Path, signers: Path | None, say: Callable[[str], None]) -> Checked:
    """Read all of it. UsageFault where it is no mirror, or was not finished."""
    signed = manifest.read(folder, signers)
    faults = [] if signed.good else [f"{manifest.SIGNATURE}: {signed.words}"]
    say(f"reading {number_of(len(signed.manifest), 'file')}")
    planned = _planned(folder)
    there = set(manifest.files(folder))
    names = sorted(there & set(signed.manifest))
    sums: dict[str, _Sum] = {}
    done = 0
    sizes = [_size(folder / name) for name in names]
    size = sum(sizes)
    asked_to_end = threading.Event()
    with ThreadPoolExecutor(WORKERS) as workers:
        try:
            found = workers.map(lambda name: _sum(folder / name, asked_to_end), names)
            for name, size_, one in zip(names, sizes, found, strict=True):
                sums[name] = one
                done += size_
                say(f"reading {number_of(len(names), 'file')}, {size_words(done)} of {size_words(size)} done")
        except BaseException:
            asked_to_end.set()  # what waits is not read to its end
            raise
    for name, wanted in sorted(signed.manifest.items()):
        if name not in there:
            faults.append(f"{name}: is missing; build the mirror again where it has internet, or copy the file again")
        elif sums[name].why:
            faults.append(f"{name}: cannot be read: {sums[name].why}; the medium is broken, or was taken out")
        elif sums[name].sha256 != wanted:
            faults.append(f"{name}: {_what(folder / name, planned.get(name))}")
    added = sorted({*there, *manifest.others(folder)} - set(signed.manifest))
    faults += [f"{name}: is not of this mirror; nobody has signed it" for name in added]
    return Checked(tuple(faults), len(names), size, signed.words, signed.said)


class _Sum(NamedTuple):
    """SHA-256 of a file, or why there is none."""

    sha256: str
    why: str


def _sum(path: Path, asked_to_end: threading.Event) -> _Sum:
    try:
        return _Sum(sha256(path, asked_to_end.is_set), "")
    except OSError as fault:
        return _Sum("", fault.strerror or "unknown error")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _planned(folder: Path) -> dict[str, Package]:
    try:
        plan = Plan.model_validate_json((folder / PLAN).read_bytes())
    except (OSError, ValidationError):
        return {}  # the manifest names it as missing or damaged
    return {f"{one.folder}/{package.file}": package for one in plan.repositories for package in one.packages}


def _what(path: Path, planned: Package | None) -> str:
    """What is wrong with a file whose hash is another: a package of another release says so itself."""
    query = _QUERIES.get(path.suffix)
    if planned is not None and query is not None:
        try:
            done = bounded.run([*query, str(path)], timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            done = None
        name, _, version = (done.stdout.decode("utf-8", "replace") if done and done.returncode == 0 else "").partition(
            "\t"
        )
        if version and (name, version) != (planned.name, planned.version):
            return f"is of another release: {name} {version}, and the mirror has {planned.name} {planned.version}"
    return "is damaged: its SHA-256 is not the signed one"
