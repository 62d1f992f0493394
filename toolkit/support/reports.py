"""Reports that other programs packed, looked through for secrets and packed again: nvidia-bug-report.sh, sosreport.

What comes is not trusted: it is read as a stream with a bound, links and devices are left out, names are checked.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit.support.secret_filter import Literals, Unlooked, clean
from validation.base.visible import visible

TEXT_BYTES = 128 << 20
"""Of a bug report, unpacked. Project default."""
MEMBER_BYTES = 32 << 20
UNPACKED_BYTES = 1024 << 20
HEADER_BYTES = 1 << 20
MOST_MEMBERS = 60_000
"""Of a sosreport: one file, all of them, how many. Project defaults."""
_LOOK_BYTES = 8192
_NEVER = re.compile(
    r"(?:^|/)(?:munge\.key|shadow-?|gshadow-?|id_(?:rsa|dsa|ecdsa|ed25519)|ssh_host_\w+_key|\.netrc|\.pgpass|\.vault_pass\w*"
    r"|[^/]*\.(?:key|p12|pfx|jks|keytab|kdbx)|krb5\.keytab|environ|slurmdbd\.conf|jwt_hs256\.key)$"
)
"""Files that are nothing but secrets, or whose secrets have no form."""
_PLAIN_NAME = re.compile(r"[\w .+=@,:~%^()\[\]{}#&!$'-]{1,200}")
_OPENERS = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\0", lzma.open), (b"BZh", bz2.open))


@dataclass
class Repacked:
    """What became of a report. `fault`: why there is none; `left`: what of it was left out, and why."""

    fault: str = ""
    note: str = ""
    hidden: Counter[str] = field(default_factory=Counter)
    left: list[tuple[str, str]] = field(default_factory=list)


class _Info(tarfile.TarInfo):
    """A member whose further headers, which tarfile holds in memory, are no larger than any real one."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _Info:
        """A header."""
        made = super().frombuf(buf, encoding, errors)
        if not made.isreg() and made.size > HEADER_BYTES:
            raise ValueError("it has a header larger than any real one")
        return made


class _Bounded(io.RawIOBase):
    """A stream that ends with an error where it has more than it may have."""

    def __init__(self, source: Any, most: int) -> None:
        self._source, self._left = source, most

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it has more than {UNPACKED_BYTES >> 20} MiB, unpacked")
        return data


def _opened(path: Path) -> Any:
    with path.open("rb") as file:
        first = file.read(8)
    for magic, opener in _OPENERS:
        if first.startswith(magic):
            return opener(path, "rb")
    return path.open("rb")


def bug_report(source: Path, target: Path, literals: Literals) -> Repacked:
    """nvidia-bug-report.log.gz: one text."""
    done = Repacked()
    try:
        with _opened(source) as packed:
            data = packed.read(TEXT_BYTES + 1)
    except (OSError, EOFError, ValueError, lzma.LZMAError) as fault:
        return Repacked(fault=f"cannot be unpacked ({fault})")
    except Exception as fault:  # zlib.error, and whatever else a broken file raises
        return Repacked(fault=f"cannot be unpacked ({type(fault).__name__}: {fault})")
    if len(data) > TEXT_BYTES:
        data, done.note = data[:TEXT_BYTES], f"the first {TEXT_BYTES >> 20} MiB of it"
    cleaned = clean(data, literals)
    done.hidden = cleaned.hidden
    with gzip.open(target, "wb", compresslevel=6) as out:
        out.write(cleaned.data)
    return done


def sosreport(source: Path, target: Path, literals: Literals) -> Repacked:
    """sosreport: an archive of texts. What is no text, or cannot be looked through, is left out and counted."""
    done, counts = Repacked(), Counter[str]()
    try:
        with (
            _opened(source) as packed,
            tarfile.open(fileobj=_Bounded(packed, UNPACKED_BYTES), mode="r|", tarinfo=_Info) as old,
            tarfile.open(target, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=6) as new,
        ):
            for number, member in enumerate(old):
                if number >= MOST_MEMBERS:
                    done.note = f"the first {MOST_MEMBERS} files of it"
                    break
                for name, data in _of_member(old, member, done, counts, literals):
                    about = tarfile.TarInfo(name)
                    about.size, about.mode, about.mtime = len(data), 0o600, max(0, int(member.mtime))
                    new.addfile(about, io.BytesIO(data))
    except Exception as fault:  # of a hostile archive anything can come
        if isinstance(fault, OSError) and fault.errno == errno.ENOSPC:
            raise
        return Repacked(fault=f"cannot be read as an archive ({type(fault).__name__}: {visible(str(fault))[:200]})")
    done.left += [(f"{count} files", why) for why, count in sorted(counts.items())]
    return done


def _of_member(
    old: tarfile.TarFile, member: tarfile.TarInfo, done: Repacked, counts: Counter[str], literals: Literals
) -> Iterator[tuple[str, bytes]]:
    """A member as it goes into the new archive, where it does."""
    if member.isdir():
        return
    name = safe_name(member.name)
    if not member.isfile():
        counts["are links or devices"] += 1
    elif name is None:
        counts["have a name that leads out of the archive, or cannot be printed"] += 1
    elif _NEVER.search(name):
        done.left.append((name, "is a file of secrets by its name"))
    elif member.size > MEMBER_BYTES:
        done.left.append((name, f"has more than {MEMBER_BYTES >> 20} MiB"))
    else:
        file = old.extractfile(member)
        data = _text(file.read() if file is not None else b"")
        if data is None:
            counts["are no text, so that they cannot be looked through for secrets"] += 1
            return
        try:
            cleaned = clean(data, literals)
        except Unlooked:
            done.left.append((name, "could not be looked through for secrets in its time"))
            return
        done.hidden += cleaned.hidden
        packed = name.endswith(".gz") and len(name) > 3
        yield name[:-3] if packed else name, cleaned.data


def _text(data: bytes) -> bytes | None:
    """A text as it is, or unpacked; None where it is none."""
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MEMBER_BYTES)
        except Exception:  # no gzip after all
            return None
    return None if b"\0" in data[:_LOOK_BYTES] and not data.startswith((b"\xff\xfe", b"\xfe\xff")) else data


def safe_name(name: str) -> str | None:
    """A member's name where it stays below the archive's top and can be printed; else None."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or not parts or len(name) > 900 or ".." in parts:
        return None
    return "/".join(parts) if all(_PLAIN_NAME.fullmatch(part) for part in parts) else None
