"""Archives in the form that Linux takes as initial RAM disk ("newc", Documentation/driver-api/early-userspace)."""

from __future__ import annotations

import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class CpioEntry:
    """A file, folder or link; everything belongs to root."""

    name: str
    mode: int
    data: bytes


def folder(name: str, mode: int = 0o755) -> CpioEntry:
    """A folder."""
    return CpioEntry(name, stat.S_IFDIR | mode, b"")


def file(name: str, data: bytes, mode: int = 0o644) -> CpioEntry:
    """A file."""
    return CpioEntry(name, stat.S_IFREG | mode, data)


def link(name: str, target: str) -> CpioEntry:
    """A symbolic link."""
    return CpioEntry(name, stat.S_IFLNK | 0o777, target.encode())


def archive(entries: list[CpioEntry]) -> bytes:
    """The archive's bytes, a multiple of 512, so that another archive may follow."""
    out = bytearray()
    for number, entry in enumerate([*entries, CpioEntry("TRAILER!!!", 0, b"")], start=1):
        name = entry.name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        # inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name, checksum
        fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % f for f in fields) + name
        out += bytes(-len(out) % 4) + entry.data
        out += bytes(-len(out) % 4)
    return bytes(out + bytes(-len(out) % 512))
