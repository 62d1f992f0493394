"""The manifest: the SHA-256 of every file of a run, in the form that `sha256sum -c` reads.

Not in it: the manifest itself, `signatures/` (they sign it), and files whose path has a part that begins with a dot
(locks, half-written files), which are no part of a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.model.load import ConfigError, read_bytes
from validation.signing import MANIFEST, SIGNATURES

_NAME = re.compile(r"[^\x00-\x1f\x7f\\]+")
_LINE = re.compile(rf"([0-9a-f]{{64}})  ({_NAME.pattern})")
_BLOCK_BYTES = 1 << 20
LOCK = ".lock"
"""Of a run that somebody writes or signs: no part of it."""
DEPTH = 16
"""How many folders of a run may stand within each other; ours have at most four."""
_LOCK_BYTES = 20
_SHOWN = 200  # characters of a path that is too long


@dataclass(frozen=True)
class Difference:
    """Names of files (relative, with `/`) that are not as the manifest says; all empty when nothing differs."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True when anything differs."""
        return bool(self.changed or self.missing or self.added)

    def words(self) -> list[str]:
        """One line for each file."""
        return [
            f"{name}: {what}"
            for what, names in (("changed", self.changed), ("missing", self.missing), ("added", self.added))
            for name in names
        ]


def unnamed(run_dir: Path) -> list[str]:
    """What lies in a run and is named by no manifest: dot files and folders, and folders without a file.

    Not the lock of a run in use, which is empty of all but a number of a process.
    """
    return [name for name in _unnamed(str(run_dir), "", 0) if name != LOCK or not _is_lock(run_dir / name)]


def _is_lock(path: Path) -> bool:
    return (
        path.is_file()
        and not path.is_symlink()
        and path.stat().st_size <= _LOCK_BYTES
        and re.fullmatch(rb"\d*\n?", read_bytes(path)) is not None
    )


def _unnamed(folder: str, before: str, depth: int) -> Iterator[str]:
    with _listed(folder, depth) as things:
        found = sorted(things, key=lambda thing: thing.name)
    if not found and before:
        yield before
    for thing in found:
        name = before + thing.name
        if thing.name.startswith("."):
            yield name
        elif thing.is_dir(follow_symlinks=False):
            yield from _unnamed(thing.path, f"{name}/", depth + 1)


@contextlib.contextmanager
def _listed(folder: str, depth: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    if depth > DEPTH:
        raise ConfigError(f"{folder[:_SHOWN]}...: more than {DEPTH} folders within each other; no run has them")
    try:
        with os.scandir(folder) as found:
            yield found
    except OSError as fault:
        raise ConfigError(
            f"{fault.filename}: cannot be read: {fault.strerror or fault}; check who can read the run"
        ) from None


def entries(run_dir: Path) -> Iterator[tuple[str, bool]]:
    """Every file of the run but dot files, signatures and the manifest: its name, and whether it is an ordinary file.

    Links, devices and names with control characters or a backslash are not ordinary. Links are not followed.
    """
    yield from _below(str(run_dir), "", 0)


def _below(folder: str, before: str, depth: int) -> Iterator[tuple[str, bool]]:
    """The files of a folder, then those of its folders; `before` is its name in the run, with `/`.

    Paths are words here: as objects they took a fifth of the time in which a fleet's run is verified.
    """
    with _listed(folder, depth) as found:
        things = sorted((thing for thing in found if not thing.name.startswith(".")), key=lambda thing: thing.name)
    folders = []
    for thing in things:
        name = before + thing.name
        if thing.is_dir(follow_symlinks=False):
            if name != SIGNATURES:
                folders.append(thing)
        elif name != MANIFEST:
            yield name, thing.is_file(follow_symlinks=False) and _NAME.fullmatch(name) is not None and _is_text(name)
    for one in folders:
        yield from _below(one.path, f"{before}{one.name}/", depth + 1)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return True


def file_sha256(path: Path | str) -> str:
    """The SHA-256 of a file in hexadecimal digits; ConfigError where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - of hundreds of thousands
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}; check who can read the run") from None
    return digest.hexdigest()


def make_manifest(run_dir: Path) -> str:
    """The text of the manifest; ConfigError where the run holds something that is not an ordinary file."""
    lines = []
    for name, ordinary in entries(run_dir):
        if not ordinary:
            raise ConfigError(
                f"{run_dir / name!s}: is a link, a device, or has an unusable name; take it out of the run"
            )
        sha256 = file_sha256(f"{run_dir}/{name}")
        lines.append(f"{sha256}  {name}\n")
    return "".join(sorted(lines, key=lambda line: line[66:]))


def parse_manifest(text: str, where: Path) -> dict[str, str]:
    """File name -> SHA-256; ConfigError with the line that is no manifest's."""
    listed: dict[str, str] = {}
    if not text.endswith("\n"):
        raise ConfigError(f"{where}: its last line is cut; restore the file from a copy")
    for number, line in enumerate(text[:-1].split("\n"), start=1):
        match = _LINE.fullmatch(line)
        if match is None or match.group(2) in listed:
            raise ConfigError(f"{where}:{number}: not a line of a manifest; restore the file from a copy")
        listed[match.group(2)] = match.group(1)
    return listed


def read_manifest(run_dir: Path) -> dict[str, str]:
    """The manifest of a run: file name -> SHA-256. ConfigError where it is missing or damaged."""
    path = run_dir / MANIFEST
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path}: is no ordinary file; restore it from a copy")
    if not path.exists():
        raise ConfigError(f"{path}: No such file or directory; the run was never signed, or the file is lost")
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path}: not UTF-8 text at byte {fault.start}; restore the file from a copy") from None
    return parse_manifest(text, path)


def compare(run_dir: Path, listed: dict[str, str]) -> Difference:
    """How the files of the run differ from a manifest."""
    found = dict(entries(run_dir))
    ordinary = {name for name, good in found.items() if good}
    return Difference(
        changed=tuple(n for n in sorted(listed) if n in ordinary and file_sha256(f"{run_dir}/{n}") != listed[n]),
        missing=tuple(n for n in sorted(listed) if n not in ordinary),
        added=tuple(n for n in sorted(found) if n not in listed or n not in ordinary),
    )
