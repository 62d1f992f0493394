"""What a program or shared library for Linux needs of a node: machine, libraries, and the versions of their symbols.

Read from the dynamic section, as the loader does. Layout: System V ABI (ELF64, little-endian) and, for the versions
that are needed (DT_VERNEED), the Linux Standard Base Core, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.errors import BuildError

#: e_machine, as `uname -m` names it.
MACHINES = {62: "x86_64", 183: "aarch64"}
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _SONAME = 1, 5, 10, 14
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
#: More than any program has; a damaged file must not keep us busy.
_MOST = 4096


@dataclass(frozen=True)
class Needs:
    """machine as uname -m; libraries: soname -> versions of its symbols that are asked for (GLIBC_2.34), maybe none."""

    machine: str
    soname: str
    libraries: dict[str, tuple[str, ...]] = field(default_factory=dict)


def glibc_of(all_needs: Iterable[Needs]) -> str:
    """The newest GLIBC version that any of them asks for, "2.38"."""
    versions = [version for needs in all_needs for asked in needs.libraries.values() for version in asked]
    numbers = [
        tuple(int(n) for n in version.removeprefix("GLIBC_").split("."))
        for version in versions
        if version.startswith("GLIBC_") and version[6:].replace(".", "").isdigit()
    ]
    return ".".join(str(n) for n in max(numbers, default=(2, 0)))


def read(data: bytes, name: str) -> Needs:
    """What these bytes of a file need. BuildError, with `name`, for what is no 64-bit program or library of Linux."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise BuildError(f"{name}: not a 64-bit program or library for Linux")
    try:
        return _read(data)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as fault:
        raise BuildError(f"{name}: damaged, or not for this kind of machine ({fault})") from None


def read_file(path: Path) -> Needs:
    """The same of a file."""
    return read(path.read_bytes(), str(path))


def _read(data: bytes) -> Needs:
    machine = MACHINES[struct.unpack_from("<H", data, 18)[0]]
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # type, file offset, address, length in the file
    headers = []
    for i in range(count):
        kind, _flags, offset, address, _physical, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        headers.append((kind, offset, address, length))

    def at(address: int) -> int:
        for kind, offset, start, length in headers:
            if kind == _LOAD and start <= address < start + length:
                return int(address - start + offset)
        raise ValueError(f"address {address:#x} is in no part of the file")

    entries: list[tuple[int, int]] = []
    for kind, offset, _start, length in headers:
        if kind == _DYNAMIC:
            entries += [struct.unpack_from("<QQ", data, offset + i * 16) for i in range(min(length // 16, _MOST))]
    values = dict(entries)
    if _STRTAB not in values:
        return Needs(machine, "")
    start = at(values[_STRTAB])
    strings = data[start : start + values[_STRSZ]]

    def text(offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode()

    libraries: dict[str, tuple[str, ...]] = {text(value): () for tag, value in entries if tag == _NEEDED}
    place = at(values[_VERNEED]) if _VERNEED in values else 0
    for _ in range(min(values.get(_VERNEEDNUM, 0), _MOST)):
        _version, many, file, auxiliary, following = struct.unpack_from("<HHIII", data, place)
        versions, where = [], place + auxiliary
        for _ in range(min(many, _MOST)):
            _hash, _flags, _other, named, after = struct.unpack_from("<IHHII", data, where)
            versions.append(text(named))
            where += after
        libraries[text(file)] = tuple(sorted({*libraries.get(text(file), ()), *versions}))
        place += following
    return Needs(machine, text(values[_SONAME]) if _SONAME in values else "", libraries)
