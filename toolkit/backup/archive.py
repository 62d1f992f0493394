"""A backup as a file: a compressed tar in age's format, read as a stream and believed only to its very end.

The first member, `backup.json`, has what it is of; the last, `manifest.json`, has the SHA-256 of every file before it.
age authenticates each piece, so that a file that was altered or cut off ends its reading. Standard library and the
program `age` alone: it runs on the head too.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

FORMAT = 1
HEADER, MANIFEST = "backup.json", "manifest.json"
SUFFIX = ".backup"
PARTS = {
    "key": "munge key",
    "pool": "nodes and policy of the pool",
    "accounting": "accounting database",
    "slurm": "state of Slurm's controller",
    "registry": "registry of images and its certificates",
    "prometheus": "figures of Prometheus",
    "runs": "validations on the head",
    "ledgers": "ledgers and records of the head's deployment",
}
"""What a backup can have, with its words; a member's name begins with its part."""
MOST_TEXT_BYTES = 64 << 20
_CHUNK = 1 << 20
_MAGIC = b"age-encryption.org/v1"


class Unreadable(Exception):
    """A backup that cannot be read: one sentence without the file's name."""


@dataclass
class Header:
    """What a backup is of. `parts`: bytes by part; `missing`: why a part is not in it."""

    format: int
    made: str
    cluster: str
    head: str
    release: str = ""
    slurm: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


class _Counted:
    """A file that gives as many bytes as were announced, whatever happens to it meanwhile, and their digest."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        """`size`: bytes to give."""
        self.stream, self.left, self.digest = stream, size, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        data = self.stream.read(wanted)
        data += b"\0" * (wanted - len(data))  # it got shorter under the copy
        self.left -= len(data)
        self.digest.update(data)
        return data


class Writer:
    """Members of a backup, one after the other, into an encrypted file that is there as a whole or not at all."""

    def __init__(self, out: IO[bytes], recipients: Path) -> None:
        """Begin one for the public keys of a file."""
        self.age = subprocess.Popen(
            ["age", "--encrypt", "--recipients-file", str(recipients)], stdin=subprocess.PIPE, stdout=out,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.age.stdin is not None
        self.packed = gzip.GzipFile(fileobj=self.age.stdin, mode="wb", compresslevel=1)
        self.tar = tarfile.open(fileobj=self.packed, mode="w|")  # noqa: SIM115 - finish() closes it
        self.digests: dict[str, str] = {}

    def text(self, name: str, document: Any) -> None:
        """A document of the backup's own."""
        data = json.dumps(document, sort_keys=True).encode()
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self.tar.addfile(info, io.BytesIO(data))

    def file(self, name: str, stream: IO[bytes], info: tarfile.TarInfo) -> int:
        """A regular file; its bytes."""
        info.name = name
        counted = _Counted(stream, info.size)
        self.tar.addfile(info, counted)
        self.digests[name] = counted.digest.hexdigest()
        return info.size

    def tree(self, part: str, root: Path, inside: str = "") -> int:
        """A folder or file with what is in it, under `PART/INSIDE`; the bytes of its files. What vanishes meanwhile is
        left out, as are sockets and devices."""
        total = 0
        for path, name in _walked(root, f"{part}/{inside}" if inside else part):
            try:
                info = self.tar.gettarinfo(str(path), name)
                if info is None:
                    continue
                if info.isreg() or info.islnk():
                    info.type, info.linkname = tarfile.REGTYPE, ""
                    with path.open("rb") as stream:
                        info.size = os.fstat(stream.fileno()).st_size
                        total += self.file(name, stream, info)
                elif info.isdir() or info.issym():
                    self.tar.addfile(info)
            except FileNotFoundError:
                continue
        return total

    def finish(self) -> None:
        """The manifest, and the end. OSError where age failed."""
        self.text(MANIFEST, {"sha256": self.digests})
        self.tar.close()
        self.packed.close()
        said = self.stop(False)
        if self.age.returncode != 0:
            raise OSError(f"age: {_last(said)}")

    def stop(self, kill: bool = True) -> str:
        """End age, whatever it was at; what it printed."""
        assert self.age.stdin is not None
        assert self.age.stderr is not None
        with contextlib.suppress(OSError):
            self.age.stdin.close()
        if kill:
            self.age.kill()
        said = self.age.stderr.read().decode("utf-8", "replace")
        self.age.wait()
        return said


def _walked(root: Path, name: str) -> Iterator[tuple[Path, str]]:
    yield root, name
    if root.is_dir() and not root.is_symlink():
        try:
            inside = sorted(root.iterdir())
        except FileNotFoundError:
            return
        for path in inside:
            yield from _walked(path, f"{name}/{path.name}")


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and "report unexpected" not in line]
    return lines[-1].removeprefix("age: error: ") if lines else "no words"


def _decrypt(path: Path, key: Path) -> list[str]:
    """Whole paths: a name that begins with - is no option then."""
    return ["age", "--decrypt", "--identity", str(key.absolute()), str(path.absolute())]


@contextlib.contextmanager
def opened(path: Path, key: Path) -> Iterator[tarfile.TarFile]:
    """The members of a backup, in their order. Unreadable where it cannot be read to its end."""
    _looked(path)
    with tempfile.TemporaryFile() as err:
        age = subprocess.Popen(
            _decrypt(path, key), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err
        )  # fmt: skip
        assert age.stdout is not None
        fault: Exception | None = None
        try:
            with tarfile.open(fileobj=age.stdout, mode="r|gz") as tar:
                yield tar
            while age.stdout.read(_CHUNK):
                pass
        except (tarfile.TarError, EOFError, OSError, ValueError, TypeError, RecursionError) as broken:
            fault = broken
        finally:
            age.stdout.close()
            if fault is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    age.wait(5)
            if age.poll() is None and fault is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    age.wait(30)
            age.kill()
            code = age.wait()
        err.seek(0)
        said = err.read(1 << 16).decode("utf-8", "replace")
    if code != 0 or fault is not None:
        raise Unreadable(_why(said, key.absolute(), fault)) from None


def _looked(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except OSError as fault:
        raise Unreadable(f"it cannot be opened: {fault.strerror}") from None
    if not start:
        raise Unreadable("it is empty")
    if start != _MAGIC:
        raise Unreadable("it is no backup of this toolkit (age's first line is missing)")


def _why(said: str, key: Path, fault: Exception | None) -> str:
    """In words for people, by what age printed."""
    if "no identity matched" in said:
        return f"the key {key} is not the one that it was made for, or its beginning was altered"
    if f'reading "{key}"' in said:
        return f"{key} is no key of age; give the file that age-keygen wrote"
    if "unexpected EOF" in said or "failed to parse header" in said:
        return "it is cut off before its end"
    if "decrypt and authenticate" in said or "failed to parse" in said or "header MAC" in said:
        return "it was altered or cut off after it was made"
    if said.strip():
        return f"age: {_last(said)}"
    return f"what is inside is damaged: {fault}"


def header_of(tar: tarfile.TarFile) -> Header:
    """The first member. Unreadable for a backup that another version of the toolkit made."""
    first = tar.next()
    stream = tar.extractfile(first) if first is not None and first.name == HEADER and first.isreg() else None
    if stream is None:
        raise Unreadable(f"it does not begin with {HEADER}: no backup of this toolkit")
    said = json.loads(stream.read(MOST_TEXT_BYTES))
    made = said.get("format") if isinstance(said, dict) else None
    if made != FORMAT:
        of = "a newer toolkit" if isinstance(made, int) and made > FORMAT else "an older toolkit"
        raise Unreadable(f"it has format {made} of {of}, and this one reads format {FORMAT}; use that release")
    known = {one.name for one in fields(Header)}
    return Header(**{key: value for key, value in said.items() if key in known and _fits(key, value)})


def _fits(key: str, value: Any) -> bool:
    if key not in ("parts", "missing"):
        return type(value) is type(FORMAT) if key == "format" else isinstance(value, str) and value.isprintable()
    return isinstance(value, dict)


def verified(path: Path, key: Path) -> Header:
    """Read all of it, and hold every file against the manifest; nothing is written. Unreadable where anything is not
    as it was made."""
    seen: dict[str, str] = {}
    sizes: dict[str, int] = {}
    manifest: dict[str, str] | None = None
    with opened(path, key) as tar:
        header = header_of(tar)
        for member in tar:
            if manifest is not None:
                raise Unreadable(f"{member.name} comes after its manifest")
            if not member.isreg() or member.name == HEADER:
                continue
            stream = tar.extractfile(member)
            assert stream is not None
            if member.name == MANIFEST:
                said = json.loads(stream.read(MOST_TEXT_BYTES))
                manifest = said.get("sha256") if isinstance(said, dict) else None
                if not isinstance(manifest, dict):
                    raise Unreadable(f"its {MANIFEST} is none of this toolkit")
                continue
            digest = hashlib.sha256()
            while data := stream.read(_CHUNK):
                digest.update(data)
            seen[member.name] = digest.hexdigest()
            part = member.name.split("/", 1)[0]
            sizes[part] = sizes.get(part, 0) + member.size
    if manifest is None:
        raise Unreadable("it has no manifest at its end")
    wrong = sorted(name for name in {*seen, *manifest} if seen.get(name) != manifest.get(name))
    if wrong:
        raise Unreadable(f"{wrong[0]} in it is not what was written ({len(wrong)} such)")
    header.parts = sizes
    return header


def decrypting(path: Path, key: Path) -> subprocess.Popen[bytes]:
    """age, which gives the compressed tar on its stdout."""
    return subprocess.Popen(
        _decrypt(path, key), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
