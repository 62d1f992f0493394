"""The package: files that are kept aside until all are there, cleaned of secrets, listed in a manifest, packed as one.

While it is made its files are in a folder of this user alone, which is removed however the command ends.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from toolkit.errors import UsageFault
from toolkit.support import reports
from toolkit.support.node import allowed
from toolkit.support.secret_filter import Literals, Unlooked, clean, hidden_line
from validation.base import bounded, noise

SCHEMA = "elastic-ai/support-package/1"
MANIFEST, README = "manifest.json", "README.txt"
MOST_FILES = 4000
FILE_BYTES = 16 << 20
"""Of one text, 256 MiB of a report that the node packed; 512 MiB of all as they come. Project defaults."""
REPORT_BYTES = 256 << 20
ALL_BYTES = 512 << 20
MOST_UNREAD = 1000
UNLOOKED = "could not be looked through for secrets in its time"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What systems of files without hard links answer: FAT of a USB stick, some shares of a network."""
_REPORTS: Mapping[str, Callable[[Path, Path, Literals], reports.Repacked]] = {
    "node/reports/nvidia-bug-report.log.gz": reports.bug_report,
    "node/reports/sosreport.tar.gz": reports.sosreport,
}


def now() -> str:
    """A time as the manifest has it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Entry:
    """A file of the package. `total`: bytes that there were where it was made; `kept`: "whole", or what of it."""

    name: str
    path: Path
    size: int
    sha256: str
    source: str
    when: str
    total: int
    kept: str
    note: str
    hidden: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        """As the manifest has it."""
        fields = {key: value for key, value in vars(self).items() if key != "path"}
        return {**fields, "hidden": dict(self.hidden)}


@dataclass
class _Raw:
    """A file of the node as it came."""

    path: Path
    size: int = 0
    said: dict[str, Any] | None = None
    cut: bool = False


@dataclass
class Package:
    """All that goes into one file. Files of the node are taken as they come, and cleaned by `settle`."""

    folder: Path
    literals: Literals
    entries: dict[str, Entry] = field(default_factory=dict)
    unreads: list[dict[str, str]] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)
    hidden: Counter[str] = field(default_factory=Counter)
    parts: list[dict[str, Any]] = field(default_factory=list)
    progress: Callable[[str], None] = lambda words: None
    _raw: dict[str, _Raw] = field(default_factory=dict)
    _bytes: int = 0
    _number: int = 0

    # --- what a node sends (toolkit.support.node.Taking) ---------------------------------------------------------

    def part(self, said: dict[str, Any]) -> None:
        """A part that the node lists."""
        if len(self.parts) < 2000:
            self.parts.append(said)

    def doing(self, words: str) -> None:
        """What the node does now."""
        self.progress(words)

    def piece(self, name: str, data: bytes) -> None:
        """A piece of a file; what is beyond the limits is not kept."""
        raw = self._raw.get(name)
        if raw is None:
            if len(self._raw) >= MOST_FILES:
                self.unread(name, f"the node sent more than {MOST_FILES} files")
                return
            raw = self._raw[name] = _Raw(self._free())
        most = REPORT_BYTES if name in _REPORTS else FILE_BYTES
        data_ = data[: max(0, min(most - raw.size, ALL_BYTES - self._bytes))]
        raw.cut |= len(data_) < len(data)
        if raw.said is None and data_:
            self._append(raw.path, data_)
            raw.size += len(data_)
            self._bytes += len(data_)

    def end(self, name: str, said: dict[str, Any]) -> None:
        """The end of a file, one that is empty among them."""
        if name not in self._raw:
            self.piece(name, b"")
        if name in self._raw and self._raw[name].said is None:
            self._raw[name].said = said

    def unread(self, what: str, why: str) -> None:
        """Something that could not be read, and why."""
        if len(self.unreads) < MOST_UNREAD:
            self.unreads.append({"what": hidden_line(what), "why": hidden_line(why)})

    # --- what the controller has ----------------------------------------------------------------------------------

    def add(self, name: str, data: bytes | str, source: str, note: str = "", total: int | None = None) -> None:
        """A text of the controller's own, cleaned. `total`: bytes that there were, where `data` is a part of it."""
        raw = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        self._keep(name, raw, source, now(), len(raw) if total is None else total, "", note)

    def leave_out(self, what: str, why: str) -> None:
        """Something that is there and was not taken, and why."""
        self.left.append({"what": what, "why": why})

    def settle(self) -> None:
        """Clean what the node sent."""
        for name, raw in self._raw.items():
            said = raw.said or {}
            source, when = _word(said.get("source")) or "node", _word(said.get("when")) or now()
            total = said.get("total")
            total = total if isinstance(total, int) and not isinstance(total, bool) and total >= raw.size else raw.size
            note = _word(said.get("note"))
            if raw.said is None:
                note = "the node's answer ended within this file" + (f"; {note}" if note else "")
            if name in _REPORTS:
                self.progress(f"looking for secrets in {name}")
                self._settle_report(name, raw, source, when, note)
            else:
                data = raw.path.read_bytes() if raw.size else b""
                self._keep(name, data, source, when, total, "newest" if said.get("newest") is True else "first", note)
            raw.path.unlink(missing_ok=True)
        self._raw.clear()

    def _settle_report(self, name: str, raw: _Raw, source: str, when: str, note: str) -> None:
        if raw.cut or raw.said is None:
            self.leave_out(name, f"is not whole, and a part of it cannot be opened ({note or 'it is too large'})")
            return
        path = self._free()
        try:
            done = _REPORTS[name](raw.path, path, self.literals)
        except Unlooked:
            done = reports.Repacked(fault=UNLOOKED)
        except OSError as fault:
            raise UsageFault(f"{path}: cannot be written: {fault.strerror or fault}; make room there") from None
        if done.fault:
            self.leave_out(name, f"{done.fault}; a report that cannot be looked through for secrets is not packed")
            path.unlink(missing_ok=True)
            return
        for what, why in done.left:
            self.leave_out(f"{name}: {what}", why)
        notes = "; ".join(filter(None, (note, done.note)))
        self._enter(name, path, source, when, raw.size, "whole", notes, done.hidden)

    def _keep(self, name: str, data: bytes, source: str, when: str, total: int, which: str, note: str) -> None:
        try:
            cleaned = clean(data, self.literals)
        except Unlooked:
            self.leave_out(name, UNLOOKED)
            return
        path = self._free()
        self._append(path, cleaned.data)
        kept = (
            "whole" if total <= len(data) else f"{which or 'first'} {bounded.size(len(data))} of {bounded.size(total)}"
        )
        self._enter(name, path, source, when, total, kept, note, cleaned.hidden)

    def _enter(
        self, name: str, path: Path, source: str, when: str, total: int, kept: str, note: str, hidden: Counter[str]
    ) -> None:
        with path.open("rb") as file:
            sha256 = hashlib.sha256()
            while block := file.read(1 << 20):
                sha256.update(block)
        source = hidden_line(source)
        self.hidden += hidden
        self.entries[name] = Entry(
            name, path, path.stat().st_size, sha256.hexdigest(), source, when, total, kept, note, dict(hidden)
        )

    def _free(self) -> Path:
        self._number += 1
        return self.folder / f"{self._number:05d}"

    @staticmethod
    def _append(path: Path, data: bytes) -> None:
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
                file.write(data)
        except OSError as fault:
            raise UsageFault(f"{path}: cannot be written: {fault.strerror or fault}; make room there") from None

    # --- the one file -----------------------------------------------------------------------------------------------

    def manifest(self, head: Mapping[str, Any]) -> str:
        """manifest.json."""
        document = {
            "schema": SCHEMA, **head,
            "files": [entry.document() for _, entry in sorted(self.entries.items())],
            "could_not_be_read": self.unreads,
            "left_out": self.left,
            "secrets_hidden": dict(self.hidden),
            "limits": {
                "bytes_of_a_file": FILE_BYTES, "bytes_of_a_report": REPORT_BYTES, "bytes_of_a_node": ALL_BYTES,
                "files_of_a_node": MOST_FILES,
            },
        }  # fmt: skip
        return json.dumps(document, indent=2) + "\n"

    def write(self, target: Path, top: str, head: Mapping[str, Any], readme: str) -> int:
        """Write the file, whole or not at all, for this user alone; its size. UsageFault where the disk refuses."""
        part = target.with_name(f".{target.name}.part")
        try:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                self._pack(file, top, head, readme)
                file.flush()
                os.fsync(file.fileno())
            _place(part, target)
            return target.stat().st_size
        except FileExistsError:
            raise UsageFault(f"{target}: is there already; name another file with --out") from None
        except OSError as fault:
            raise UsageFault(
                f"{target}: cannot be written: {fault.strerror or fault}; name a place with --out"
            ) from None
        finally:
            part.unlink(missing_ok=True)

    def _pack(self, file: Any, top: str, head: Mapping[str, Any], readme: str) -> None:
        with (
            gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            text = clean(readme.encode("utf-8", "backslashreplace"), self.literals).data
            _member(tar, f"{top}/{README}", io.BytesIO(text), len(text))
            listed = self.literals.taken_out(self.manifest(head).encode(), Counter())
            _member(tar, f"{top}/{MANIFEST}", io.BytesIO(listed), len(listed))
            for name, entry in sorted(self.entries.items()):
                with entry.path.open("rb") as source:
                    _member(tar, f"{top}/{name}", source, entry.size)


def _place(part: Path, target: Path) -> None:
    """Give the file its name; what is there meanwhile is not replaced. FileExistsError, OSError."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        part.replace(target)


def _member(tar: tarfile.TarFile, name: str, source: Any, size: int) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o600
    about.mtime = int(datetime.now(timezone.utc).timestamp())
    tar.addfile(about, source)


def _word(value: object) -> str:
    """A short text that a node sent."""
    return noise.printable(value)[:500] if isinstance(value, str) else ""


__all__ = ["Entry", "Package", "allowed", "now"]
