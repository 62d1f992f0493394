"""The manifest: the SHA-256 of every file of a run, in the form that `sha256sum -c` reads.

Not in it: the manifest itself, `signatures/` (they sign it), and files whose path has a part that begins with a dot
(locks, half-written files), which are no part of a run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.load import ConfigError
from validation.signing import MANIFEST, SIGNATURES

_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\x7f\\]+)")
_BLOCK_BYTES = 1 << 20


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


def entries(run_dir: Path) -> Iterator[tuple[str, bool]]:
    """Every file of the run but dot files, signatures and the manifest: its name, and whether it is an ordinary file.

    Links, devices and names with control characters or a backslash are not ordinary. Links are not followed.
    """
    for folder, folders, files in os.walk(run_dir, onerror=_stop):
        base = Path(folder)
        links = [name for name in folders if (base / name).is_symlink()]
        top = base == run_dir
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in links)
        if top and SIGNATURES in folders:
            folders.remove(SIGNATURES)
        for name in sorted([*files, *links]):
            if name.startswith(".") or (top and name == MANIFEST):
                continue
            path = base / name
            relative = path.relative_to(run_dir).as_posix()
            ordinary = path.is_file() and not path.is_symlink() and bool(_LINE.fullmatch(f"{'0' * 64}  {relative}"))
            yield relative, ordinary and _is_text(relative)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return True


def _stop(fault: OSError) -> None:
    raise ConfigError(f"{fault.filename}: cannot be read: {fault.strerror or fault}; check who may read the run")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits; ConfigError where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}; check who may read the run") from None
    return digest.hexdigest()


def make_manifest(run_dir: Path) -> str:
    """The text of the manifest; ConfigError where the run holds something that is not an ordinary file."""
    lines = []
    for name, ordinary in entries(run_dir):
        if not ordinary:
            raise ConfigError(
                f"{run_dir / name!s}: is a link, a device, or has an unusable name; take it out of the run"
            )
        lines.append(f"{file_sha256(run_dir / name)}  {name}\n")
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
    try:
        text = path.read_bytes().decode()
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror or fault}; the run was never signed, or the file is lost") from None
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path}: not UTF-8 text at byte {fault.start}; restore the file from a copy") from None
    return parse_manifest(text, path)


def compare(run_dir: Path, listed: dict[str, str]) -> Difference:
    """How the files of the run differ from a manifest."""
    found = dict(entries(run_dir))
    ordinary = {name for name, good in found.items() if good}
    return Difference(
        changed=tuple(n for n in sorted(listed) if n in ordinary and file_sha256(run_dir / n) != listed[n]),
        missing=tuple(n for n in sorted(listed) if n not in ordinary),
        added=tuple(n for n in sorted(found) if n not in listed or n not in ordinary),
    )
