"""One ZIP file that holds a whole run, and reading one back without trusting it.

Everything in the file but the compressed data is fixed by the names, sizes and checksums of what it holds: names in
order, one folder, no times, no gaps. Reading builds all that again and compares it byte by byte, so that no ZIP program
can see another content than the one that was checked. The end of the file is the SHA-256 of all before it, so that
any change is found, even of a bit that no program reads.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from validation.base.counting import number_of
from validation.model.load import ConfigError
from validation.signing.manifest import DEPTH

MAX_FILE_BYTES = MAX_BUNDLE_BYTES = 0xFFFF_FFFE  # what a ZIP file can say without its 64-bit extension
MAX_TOTAL_BYTES = 64 << 30
MAX_FILES = 2_000_000
MAX_DIRECTORY_BYTES = 512 << 20
MAX_NAME = 1024
"""Characters of a file's name with its folders, at most. Project default."""
_DATE = (1 << 5) | 1  # 1980-01-01, the first day that ZIP knows
_FLAGS, _DEFLATE, _VERSION = 0x800, 8, 20  # names are UTF-8
_MODE = 0o100644 << 16
_COMMENT = b"elastic-ai-bundle/1 sha256 of all before: "
_DIGITS = 64
_BLOCK_BYTES = 1 << 20
_ENTRIES_MAX = 0xFFFF
_UNUSABLE = frozenset('\\:"<>|*?')  # in names on one system or another


class Damaged(Exception):
    """A bundle that is not what a bundle must be; `str()` says what, in a few words."""


@dataclass(frozen=True)
class Entry:
    """A file in a bundle: name with folder, checksum, sizes compressed and whole, and where its header begins."""

    name: str
    crc: int
    packed_bytes: int
    size_bytes: int
    offset: int

    def local(self) -> bytes:
        """The header before its data."""
        name = self.name.encode()
        fields = (_VERSION, _FLAGS, _DEFLATE, 0, _DATE, self.crc, self.packed_bytes, self.size_bytes, len(name), 0)
        return struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields) + name

    def central(self) -> bytes:
        """Its line in the directory at the end."""
        name = self.name.encode()
        made_by = (3 << 8) | _VERSION
        fields = (made_by, _VERSION, _FLAGS, _DEFLATE, 0, _DATE, self.crc, self.packed_bytes, self.size_bytes)
        return struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *fields, len(name), 0, 0, 0, 0, _MODE, self.offset) + name

    @property
    def end(self) -> int:
        """Where its data end."""
        return self.offset + len(self.local()) + self.packed_bytes


def _ending(entries: list[Entry]) -> bytes:
    """Directory and end record, up to where the SHA-256 of all before it stands."""
    start = entries[-1].end if entries else 0
    directory = b"".join(entry.central() for entry in entries)
    count, size = len(entries), len(directory)
    end = b""
    if count >= _ENTRIES_MAX:
        where = start + size
        end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, (3 << 8) | 45, 45, 0, 0, count, count, size, start)
        end += struct.pack("<4sLQL", b"PK\x06\x07", 0, where, 1)
        count = _ENTRIES_MAX
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, len(_COMMENT) + _DIGITS)
    return directory + end + last + _COMMENT


def write_bundle(target: Path, folder: str, files: dict[str, Path | bytes]) -> int:
    """Write the files (name -> where it is, or its content) into a bundle under `folder`; its size in bytes.

    The target is there whole or not at all. ConfigError where something cannot be read or written.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        _check_names([f"{folder}/{name}" for name in sorted(files)])
    except Damaged as fault:
        raise ConfigError(f"{target}: cannot be made: {fault}; take it out of the run") from None
    try:
        with part.open("w+b") as out:
            entries: list[Entry] = []
            for name in sorted(files):
                entries.append(_append(out, f"{folder}/{name}", files[name]))
                if entries[-1].end > MAX_BUNDLE_BYTES:
                    raise ConfigError(f"{target}: would be larger than 4 GiB, the most that every ZIP program reads")
            out.write(_ending(entries))
            out.seek(0)
            digest = _sha256(out, None)
            out.seek(0, 2)
            out.write(digest.encode())
            size = out.tell()
        part.replace(target)
    except OSError as fault:
        raise ConfigError(
            f"{fault.filename or target}: {fault.strerror or fault}; give another place: -o FILE"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return size


def _append(out: BinaryIO, name: str, source: Path | bytes) -> Entry:
    offset = out.tell()
    out.write(Entry(name, 0, 0, 0, offset).local())
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    crc = size = packed = 0
    for block in _blocks(source):
        crc, size = zlib.crc32(block, crc), size + len(block)
        packed += out.write(packer.compress(block))
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{name}: is larger than 4 GiB; a bundle cannot hold it")
    packed += out.write(packer.flush())
    entry = Entry(name, crc, packed, size, offset)
    out.seek(offset)
    out.write(entry.local())
    out.seek(entry.end)
    return entry


def _blocks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _sha256(file: BinaryIO, count: int | None) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK_BYTES if count is None else min(_BLOCK_BYTES, count)):
        digest.update(block)
        if count is not None:
            count -= len(block)
    return digest.hexdigest()


def extract_bundle(bundle: Path, into: Path) -> Path:
    """Check the bundle's form and put its files into the empty folder `into`; the folder of the run in it.

    Damaged where it is not byte for byte what `write_bundle` makes of these files; ConfigError where the file cannot be
    read or the disk is full.
    """
    try:
        with bundle.open("rb") as file:
            entries = _read(file)
            room = shutil.disk_usage(into).free
            total = sum(entry.size_bytes for entry in entries)
            if total > room:
                raise ConfigError(f"{into}: {total / 1e9:.1f} GB are needed, {room / 1e9:.1f} GB are free; set TMPDIR")
            for entry in entries:
                _unpack(file, entry, into / entry.name)
    except OSError as fault:
        raise ConfigError(f"{fault.filename or bundle}: {fault.strerror or fault}") from None
    return into / entries[0].name.split("/")[0]


def _read(file: BinaryIO) -> list[Entry]:
    """The entries, after everything but their data has been compared."""
    size = file.seek(0, 2)
    tail = len(_COMMENT) + _DIGITS
    file.seek(max(0, size - tail))
    comment = file.read()
    if len(comment) != tail or not comment.startswith(_COMMENT):
        raise Damaged("is not a bundle, or its end was cut or changed")
    file.seek(0)
    if _sha256(file, size - _DIGITS) != comment[len(_COMMENT) :].decode("ascii", "replace"):
        raise Damaged("its content is not what it was made with (SHA-256 at its end)")
    _check_directory(file, size - tail)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, EOFError) as fault:
        raise Damaged(f"is not a ZIP file: {fault}") from None
    entries: list[Entry] = []
    for info in infos:
        offset = entries[-1].end if entries else 0
        entries.append(Entry(info.filename, info.CRC, info.compress_size, info.file_size, offset))
    _check_names([entry.name for entry in entries])
    _check_sizes(entries, size)
    for entry in entries:
        file.seek(entry.offset)
        header = entry.local()
        if file.read(len(header)) != header:
            raise Damaged(f"{entry.name}: its header is not what a bundle's is")
    ending = _ending(entries)
    file.seek(entries[-1].end)
    if file.read(len(ending) + _DIGITS + 1)[:-_DIGITS] != ending:
        raise Damaged("its directory is not what a bundle's is")
    return entries


def _check_directory(file: BinaryIO, end: int) -> None:
    """Before the directory is read as a whole: it has no more bytes than one of so many files can have."""
    back = 22 + 20 + 56  # the end record, and before it those of a directory with very many files
    file.seek(max(0, end - back))
    records = file.read(end - file.tell())
    if records[-22:-18] != b"PK\x05\x06":
        raise Damaged("is not a ZIP file: its end record is not where it has to be")
    stated = [int.from_bytes(records[-10:-6], "little")]
    if len(records) == back and records[:4] == b"PK\x06\x06":
        stated.append(int.from_bytes(records[40:48], "little"))
    if max(stated) > MAX_DIRECTORY_BYTES:
        raise Damaged("its directory is too large for a run")


def _check_names(names: list[str]) -> None:
    if not names:
        raise Damaged("is empty")
    if len(names) > MAX_FILES:
        raise Damaged(f"has {number_of(len(names), 'file')}")
    top = names[0].split("/")[0]
    for name in names:
        parts = name.split("/")
        if len(parts) > DEPTH + 2 or len(name) > MAX_NAME or any(len(part.encode()) > 255 for part in parts):
            raise Damaged(f"{name[:80]!r}...: too long a name, or too many folders within each other")
        bad = any(part in ("", ".", "..") or part.startswith(".") for part in parts) or len(parts) < 2
        if bad or parts[0] != top or any(ord(c) < 32 or ord(c) == 127 or c in _UNUSABLE for c in name):
            raise Damaged(f"{name!r}: not a valid file name in a bundle")
    if names != sorted(set(names)):
        raise Damaged("duplicate names, or names not in order")


def _check_sizes(entries: Iterable[Entry], size: int) -> None:
    total = 0
    for entry in entries:
        total += entry.size_bytes
        # deflate packs no more than 1032 bytes into one
        if entry.end > size or entry.size_bytes > 1032 * entry.packed_bytes + 1032 or entry.size_bytes > MAX_FILE_BYTES:
            raise Damaged(f"{entry.name}: impossible size")
    if total > MAX_TOTAL_BYTES:
        raise Damaged(f"has {total / 1e9:.0f} GB, which is too large for a run")


def _unpack(file: BinaryIO, entry: Entry, target: Path) -> None:
    file.seek(entry.offset + len(entry.local()))
    left, crc, size = entry.packed_bytes, 0, 0
    unpacker = zlib.decompressobj(-15)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("xb")
    except (FileExistsError, NotADirectoryError):
        raise Damaged(f"{entry.name}: is a file and a folder at once") from None
    with out:
        while left and not unpacker.eof:
            block = file.read(min(left, _BLOCK_BYTES))
            left -= len(block)
            while block and not unpacker.eof:
                try:
                    plain = unpacker.decompress(block, _BLOCK_BYTES)
                except zlib.error as fault:
                    raise Damaged(f"{entry.name}: {fault}") from None
                crc, size = zlib.crc32(plain, crc), size + len(plain)
                if size > entry.size_bytes:
                    raise Damaged(f"{entry.name}: is larger than it says")
                out.write(plain)
                block = unpacker.unconsumed_tail
        while not unpacker.eof and (plain := unpacker.decompress(b"", _BLOCK_BYTES)):
            crc, size = zlib.crc32(plain, crc), size + len(plain)
            if size > entry.size_bytes:
                raise Damaged(f"{entry.name}: is larger than it says")
            out.write(plain)
    if left or not unpacker.eof or unpacker.unused_data or (crc, size) != (entry.crc, entry.size_bytes):
        raise Damaged(f"{entry.name}: its data are damaged")
