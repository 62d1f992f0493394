"""The archive of the engine Lupine, made from the files that its publisher released: nothing of it is built here.

What the roles install is one tar.gz: `engine.json`, `bin/` (the server), `lib/` (the client's libraries, which would
take the driver's place on a server) and `lib-server/` with the gate that asks each connection for the lease's token
(gate/gate.c, compiled here; see there why).

The publisher's files, by his release workflow (lupinemachines/lupine, .github/workflows/build-cuda-matrix.yml, v1.0.0):
`lupine-{server,client}-cuda-C-ubuntuU-x86_64.zip` with the bare files and SHA256SUMS; images with the same files in
/opt/lupine; and wheels of the package index, which hold clients alone.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from toolkit.engine import elf
from toolkit.engine.build import SOURCES, compile_library, write_archive
from toolkit.errors import BuildError
from validation.base.temporary import room

#: Parts of a release: where they go, and the files' names as published. Without the last a client has no NVML.
SERVER, CLIENT, NVML = "lupine_driver_server", "libcuda.so.1", "libnvidia-ml.so.1"
PLACES = {SERVER: f"bin/{SERVER}", CLIENT: f"lib/{CLIENT}", NVML: f"lib/{NVML}"}
GATE = "lib-server/libelastic-ai-gate.so"
#: What marks a file as Lupine's, among an image's other libraries of the same name; for the server the interface by
#: which the gate is loaded, in the version that the gate speaks.
MARKS = {SERVER: b"lupinecr_get_lupine_provider_v1", CLIENT: b"LUPINE_SERVER", NVML: b"LUPINE_SERVER"}
SESSION = b"x-lupine-session"
#: What releases from 2.0 on have in both halves, and 1.x in neither: they do not talk to each other, and say nothing.
WIRE = b"x-lupine-wire-identity"
#: Larger than any of its files (some 3 MB); what claims more is no release.
MOST_BYTES = 512 << 20
NAMED = re.compile(r"lupine-(?P<part>server|client)-cuda-(?P<cuda>\d+\.\d+)(?:\.\d+)*-(?P<system>[a-z]+[\d.]+)")
WHEEL = re.compile(r"lupine-(?P<release>\d+(?:\.\d+)+)-py3-none-any\.whl")


@dataclass(frozen=True)
class Found:
    """A file of a release: where it was, and its bytes."""

    part: str
    where: str
    data: bytes
    needs: elf.Needs


@dataclass
class Release:
    """What the given files and folders hold, and say of themselves. cuda: by the part that a name names."""

    found: list[Found] = field(default_factory=list)
    cuda: dict[str, str] = field(default_factory=dict)
    release: str = ""
    texts: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Packed:
    """The archive, its sha256, and engine.json."""

    path: Path
    sha256: str
    about: dict[str, Any]


def _sums(text: bytes) -> dict[str, str]:
    """Name -> sha256 of a SHA256SUMS."""
    lines = [line.split(maxsplit=1) for line in text.decode(errors="replace").splitlines()]
    return {line[1].lstrip("*"): line[0].lower() for line in lines if len(line) == 2}


def _check(name: str, data: bytes, sums: dict[str, str], where: str) -> None:
    said = sums.get(name)
    if said is not None and hashlib.sha256(data).hexdigest() != said:
        raise BuildError(f"{where}: {name} has not the checksum of the publisher's SHA256SUMS: fetch it again")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Files of an archive or folder whose names are of interest, with their bytes."""
    wanted = {*PLACES, "SHA256SUMS", "LICENSE", "NOTICE"}
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.name in wanted and file.is_file():
                if file.stat().st_size > MOST_BYTES:
                    raise BuildError(f"{file}: too large for a file of this engine")
                yield str(file.relative_to(path)), file.read_bytes()
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if PurePosixPath(entry.filename).name not in wanted or entry.is_dir():
                    continue
                if entry.file_size > MOST_BYTES:
                    raise BuildError(f"{path}: {entry.filename}: too large for a file of this engine")
                yield entry.filename, archive.read(entry)
    except OSError as fault:
        raise BuildError(f"{path}: {fault.strerror or fault}") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as fault:
        raise BuildError(f"{path}: no zip, or a damaged one ({fault}): fetch it again") from None


def look(sources: Sequence[Path]) -> Release:
    """What these files and folders hold of a release. BuildError for one that is damaged or is not there."""
    release = Release()
    for path in sources:
        if not path.exists():
            raise BuildError(f"{path}: not there")
        named, wheel = NAMED.search(path.name), WHEEL.fullmatch(path.name)
        if named:
            release.cuda[named["part"]] = named["cuda"]
        if wheel:
            release.release = wheel["release"]
        members = dict(_members(path))
        for inside, data in members.items():
            name, folder = PurePosixPath(inside).name, str(PurePosixPath(inside).parent)
            where = f"{path}: {inside}"
            if name in ("LICENSE", "NOTICE"):
                if b"upine" in data or b"Apache License" in data:
                    release.texts[name] = data
            elif name in PLACES:
                beside = "SHA256SUMS" if folder == "." else f"{folder}/SHA256SUMS"
                _check(name, data, _sums(members.get(beside, b"")), str(path))
                if name == SERVER or MARKS[name] in data:
                    release.found.append(Found(name, where, data, elf.read(data, where)))
    return release


def _one(release: Release, part: str, machine: str) -> Found | None:
    """The one file of this part for this machine; BuildError where there are different ones."""
    there = [found for found in release.found if found.part == part and found.needs.machine == machine]
    if len({hashlib.sha256(found.data).digest() for found in there}) > 1:
        raise BuildError(
            f"{part} is there in different versions: {'; '.join(f.where for f in there)}: give one release"
        )
    return there[0] if there else None


def choose(release: Release, machine: str) -> dict[str, Found]:
    """The files of the archive by part. BuildError for a release that is not whole, or that the gate cannot close."""
    chosen = {part: found for part in PLACES if (found := _one(release, part, machine))}

    def other(part: str) -> str:
        there = sorted({found.needs.machine for found in release.found if found.part == part} - {machine})
        return f" for {machine} (only for {', '.join(there)})" if there else ""

    if SERVER not in chosen:
        hint = "the publisher's wheels have clients alone; " if CLIENT in chosen else ""
        raise BuildError(
            f"no server ({SERVER}){other(SERVER)}: {hint}give lupine-server-cuda-….zip of the same release as well"
        )
    if CLIENT not in chosen:
        raise BuildError(
            f"no client ({CLIENT}){other(CLIENT)}: give lupine-client-cuda-….zip of the same release as well"
        )
    if not all(mark in chosen[SERVER].data for mark in (MARKS[SERVER], SESSION)):
        raise BuildError(
            f"{chosen[SERVER].where}: this server knows no sessions and providers ({MARKS[SERVER].decode()}), by which "
            "a lease's token is asked for: anybody who reaches its port would have the lease; take a 1.x release"
        )
    if any(WIRE in found.data for found in chosen.values()):
        raise BuildError(
            "these are files of a release from 2.0 on: another layout than the toolkit knows, and another protocol "
            "than that of 1.x; take the release 1.0.0"
        )
    return chosen


def cuda_of(release: Release, given: str | None) -> str:
    """The CUDA version of server and client, "13.0". BuildError where nobody says it, or they differ."""
    said = dict(release.cuda) | ({"--cuda": given} if given else {})
    if len(set(said.values())) > 1:
        words = ", ".join(f"{what}: CUDA {version}" for what, version in said.items())
        raise BuildError(f"different CUDA versions ({words}): server and client are of one")
    if not said:
        raise BuildError("which CUDA these files are built for is in no name: give --cuda, as 13.0")
    return next(iter(said.values()))


def _needs(parts: Iterable[elf.Needs], own: set[str]) -> dict[str, Any]:
    """For engine.json: the oldest glibc, and libraries with the symbol versions that are asked of them."""
    parts = list(parts)
    libraries: dict[str, set[str]] = {}
    for needs in parts:
        for library, versions in needs.libraries.items():
            if library not in own:
                libraries.setdefault(library, set()).update(versions)
    return {
        "glibc": elf.glibc_of(parts),
        "libraries": {name: sorted(versions) for name, versions in sorted(libraries.items())},
    }


def pack(seen: Release, output: Path | None, release: str | None, cuda: str | None, machine: str) -> Packed:
    """Write the archive (None: lupine-RELEASE.tar.gz here). BuildError with one sentence where these files make none;
    then nothing is written."""
    chosen = choose(seen, machine)
    version = cuda_of(seen, cuda)
    if release and seen.release and release != seen.release:
        raise BuildError(f"--release {release}, and the wheel is of {seen.release}: server and client are of one")
    named = release or seen.release
    if not named:
        raise BuildError("these files do not name their release: give --release, as 1.0.0")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,40}", named):
        raise BuildError(f"--release {named}: use up to 41 letters, digits and .+-")
    with room("eai-gate") as scratch:
        gate = scratch / "gate.so"
        compile_library(gate, (SOURCES / "gate/gate.c",), ("-ldl",))
        gate_data, gate_needs = gate.read_bytes(), elf.read_file(gate)
    files = {PLACES[part]: found.data for part, found in chosen.items()} | {GATE: gate_data}
    driver = {"libcuda.so.1", "libnvidia-ml.so.1"}  # the driver's on a server; the engine's own on a client
    about = {
        "engine": "lupine",
        "release": f"{named}-cuda{version}",
        "cuda": version,
        "glibc": elf.glibc_of([*(f.needs for f in chosen.values()), gate_needs]),
        "machine": machine,
        "server": _needs([chosen[SERVER].needs, gate_needs], driver),
        "client": _needs((found.needs for part, found in chosen.items() if part != SERVER), driver),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    content = [("engine.json", (json.dumps(about, indent=2) + "\n").encode(), 0o644)]
    content += [(name, data, 0o755) for name, data in files.items()]
    content += [(name, data, 0o644) for name, data in sorted(seen.texts.items())]
    target = output or Path(f"lupine-{about['release']}.tar.gz")
    return Packed(target, write_archive(target, content), about)
