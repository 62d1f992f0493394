"""Building the reference engine's artefact and the emulated devices from their C sources, with the machine's gcc."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from toolkit.engine import host_modules
from toolkit.errors import BuildError
from validation.base import project
from validation.base.temporary import room
from validation.rules.release import release

#: The C sources: engine/README.md says what is in which of its folders.
SOURCES = project.ROOT / "engine"
PROTOCOL = "6"  # WIRE_PROTOCOL in reference/wire.h
FLAGS = (
    "-std=c11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2",
    "-Wall", "-Wextra", "-pthread", "-Wl,-z,relro,-z,now", "-Wl,--build-id=none",
)  # fmt: skip
#: For tests: both stop the program at their first finding.
SANITIZERS = (
    "-U_FORTIFY_SOURCE", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip
#: Bytes by RDMA, for every engine that has them.
VERBS = tuple(f"shared/verbs/{n}.c" for n in ("verbs", "verbs_orders", "verbs_port", "verbs_none"))
#: What client and server of the reference engine are both made with.
WIRE = (*(f"reference/{n}.c" for n in ("wire", "link", "lanes")), *VERBS)
SERVER = (
    *(f"reference/server/{n}.c" for n in ("server", "door", "options", "report", "accounts", "child", "session")),
    *(f"reference/server/{n}.c" for n in ("ops", "copy", "staging", "striped", "code", "launch", "handles", "driver")),
    *(f"reference/server/{n}.c" for n in ("environment", "join")),
    *WIRE,
    "shared/image.c",
)
SHARED = ("shared/common.c", "shared/refused.c", "shared/pinned.c")
CLIENT = (
    *(f"reference/client/{n}.c" for n in ("start", "connect", "connections", "reach", "say", "transport", "joining")),
    *(f"reference/client/{n}.c" for n in ("rpc", "batch", "lanes_copy", "current", "pointers", "device", "context")),
    *(f"reference/client/{n}.c" for n in ("memory", "stream", "more", "modules", "jit", "kernels")),
    *WIRE,
    "shared/image.c",
    *SHARED,
)
DRIVER = (
    *(f"devices/{n}.c" for n in ("seen", "current", "device", "context", "memory", "peer", "stream", "config")),
    *(f"devices/{n}.c" for n in ("state", "image", "code", "launch", "grid", "queue", "limits")),
    *SHARED,
)
NVML_BOTH = "shared/nvml_both.c"
NVML = (*(f"devices/{n}.c" for n in ("nvml", "health", "nvlink", "config", "state")), NVML_BOTH)
#: By what programs of a lease are shown its GPUs without CUDA, and nvidia-smi, which shows a lab's too.
LEASED_NVML = (*(f"nvml/{n}.c" for n in ("lease", "leased", "others")), NVML_BOTH)
SMI = tuple(f"nvml/{n}.c" for n in ("smi", "smi_ask", "smi_fields", "smi_show"))
#: It finds the library beside it where nothing else is said.
SMI_LINK = ("-pie", "-Wl,-rpath,$ORIGIN/../lib", "-ldl")
#: What the engine's second transport is compiled by; its library is looked for when a program asks for verbs.
VERBS_HEADER = Path("/usr/include/infiniband/verbs.h")
#: Messages for a program that asks for what is not there.
ENGINE_REFUSES = "the reference engine has no such function; not for production"
DEVICE_REFUSES = "an emulated device has no such function; it is for labs alone"


@dataclass(frozen=True)
class EngineInfo:
    """engine.json of an artefact. `transports` are those that it was built with, `glibc` is the oldest C library
    that the programs run with, `machine` as uname -m."""

    engine: str
    release: str
    protocol: str
    glibc: str
    machine: str
    transports: tuple[str, ...] = ("tcp",)


@dataclass(frozen=True)
class Artefact:
    """A built artefact and its sha256."""

    path: Path
    sha256: str
    info: EngineInfo


def missing_tools() -> str:
    """What the machine lacks for building, as one sentence; "" when it has everything."""
    lacks = [] if shutil.which("gcc") else ["gcc"]
    lacks += [] if any(Path("/usr/include").glob("**/gnu/libc-version.h")) else ["libc6-dev"]
    lacks += [] if shutil.which("objdump") else ["binutils"]
    return f"missing packages: {' '.join(lacks)}; install them with: apt-get install {' '.join(lacks)}" if lacks else ""


def transports() -> tuple[str, ...]:
    """What an engine built here can speak: verbs where libibverbs' header is (Debian's libibverbs-dev)."""
    return ("tcp", "verbs") if VERBS_HEADER.exists() else ("tcp",)


def emulated_driver() -> tuple[str, int]:
    """Version and CUDA API (as 13000) of the driver that emulated devices show: that of the release that is installed
    today, and the newest CUDA that came with its branch."""
    release = yaml.safe_load(project.file("stacks/current.yml").read_text())["stack_data"]
    versions = [one["nvidia_driver"]["version"] for one in release["sets"].values()]
    driver = max((version for version in versions if version), key=_numbers)  # without those that the site states
    known = yaml.safe_load(project.file("stacks/compatibility.yml").read_text())["cuda_driver"]
    major, minor = max(_numbers(cuda) for cuda, branch in known.items() if branch <= _numbers(driver)[0])
    return driver, major * 1000 + minor * 10


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def emulated_flags() -> tuple[str, str]:
    """By which the emulated devices' sources are told so."""
    driver, cuda = emulated_driver()
    return f'-DEMULATED_DRIVER="{driver}"', f"-DEMULATED_CUDA_VERSION={cuda}"


def source_hash() -> str:
    """Changes with every source, flag and sentence that goes into a build."""
    parts = [
        FLAGS,
        SERVER,
        CLIENT,
        DRIVER,
        NVML,
        LEASED_NVML,
        SMI,
        SMI_LINK,
        ENGINE_REFUSES,
        DEVICE_REFUSES,
        host_modules.FLAGS,
        emulated_flags(),
    ]
    digest = hashlib.sha256(repr(parts).encode())
    paths = [path for kind in ("c", "h", "cu", "ptx") for path in SOURCES.rglob(f"*.{kind}")]
    named = {path.relative_to(SOURCES).as_posix(): path for path in paths}
    for source in host_modules.sources():
        named |= {path.name: path for path in (source, source.with_suffix(".ptx"))}
    for name, path in sorted(named.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def default_release() -> str:
    """The toolkit's version and the sources' hash: client and server of one release are of the same sources."""
    return f"{release()}-{source_hash()[:8]}"


def checked(release: str) -> str:
    """The release, which is in paths and in C strings; BuildError for one that cannot be."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+~-]{0,62}", release):
        raise BuildError(f"release '{release}': use up to 63 letters, digits and .+~-, a letter or digit first")
    return release


def _compile(target: Path, sources: tuple[str, ...], options: tuple[str, ...], sanitized: bool = False) -> None:
    if sanitized:
        # the program that loads a library has the sanitizers' own functions
        options = (*SANITIZERS, *(o for o in options if o != "-Wl,-z,defs"))
    command = ["gcc", *FLAGS, "-o", str(target), *(str(SOURCES / s) for s in sources), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        raise BuildError(missing_tools() or str(e)) from e
    if done.returncode:
        raise BuildError(missing_tools() or f"gcc failed for {target.name}: {done.stderr.strip()}")


def _library(soname: str) -> tuple[str, ...]:
    return ("-shared", f"-Wl,-soname,{soname}", "-Wl,-z,defs")


def compile_engine(folder: Path, release: str, sanitized_server: bool = False) -> list[Path]:
    """Server and client library in `folder`/bin and `folder`/lib, and what `compile_shown` makes; for tests a server
    under sanitizers. BuildError."""
    named = f'-DENGINE_RELEASE="{checked(release)}"'
    server, client = folder / "bin/elastic-ai-refserver", folder / "lib/libcuda.so.1"
    server.parent.mkdir(parents=True, exist_ok=True)
    client.parent.mkdir(parents=True, exist_ok=True)
    refusal = f'-DRUNS_NO_KERNELS="{ENGINE_REFUSES}"'
    both = (named, "-DWITH_VERBS", "-ldl") if "verbs" in transports() else (named, "-ldl")
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_compile, server, SERVER, (*both, "-pie"), sanitized_server),
            pool.submit(_compile, client, CLIENT, (*both, refusal, *_library("libcuda.so.1"))),
        ]
        for job in jobs:
            job.result()
    return [server, client, *compile_shown(folder)]


def compile_shown(folder: Path, sanitized: bool = False) -> list[Path]:
    """What shows a lease's GPUs to programs of its client: NVML's library and nvidia-smi, in `folder`/client. Raises
    BuildError."""
    nvml, smi = folder / "client/lib/libnvidia-ml.so.1", folder / "client/bin/nvidia-smi"
    for path in (nvml, smi):
        path.parent.mkdir(parents=True, exist_ok=True)
    _compile(nvml, LEASED_NVML, _library("libnvidia-ml.so.1"), sanitized)
    _compile(smi, SMI, SMI_LINK, sanitized)
    return [nvml, smi]


def compile_devices(folder: Path, sanitized: bool = False) -> list[Path]:
    """The emulated devices' libcuda.so.1 and libnvidia-ml.so.1 in `folder`, an nvidia-smi that shows them, and host
    modules of the toolkit's kernels where there is a g++; sanitized libraries are for programs that are so. Raises
    BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    cuda, nvml, smi = folder / "libcuda.so.1", folder / "libnvidia-ml.so.1", folder / "nvidia-smi"
    refusal = f'-DRUNS_NO_KERNELS="{DEVICE_REFUSES}"'
    _compile(cuda, DRIVER, (*emulated_flags(), refusal, *_library("libcuda.so.1"), "-ldl"), sanitized)
    _compile(nvml, NVML, (*emulated_flags(), *_library("libnvidia-ml.so.1")), sanitized)
    _compile(smi, SMI, SMI_LINK, sanitized)
    return [cuda, nvml, smi, *([] if host_modules.lacks_compiler() else host_modules.compile_modules(folder))]


def needed_glibc(files: list[Path]) -> str:
    """The newest GLIBC symbol version that the programs ask for, "2.34". Raises BuildError."""
    found = {(2, 0)}
    for path in files:
        try:
            table = subprocess.run(
                ["objdump", "-T", str(path)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            ).stdout
        except FileNotFoundError as e:
            raise BuildError(missing_tools() or str(e)) from e
        found |= {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", table)}
    return ".".join(str(n) for n in max(found))


def runs_with(needed: str, libc: Path) -> bool:
    """Whether programs that ask for GLIBC `needed` run with that libc.so.6."""
    data = libc.read_bytes()
    have = {(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)\b", data)}
    return tuple(int(n) for n in needed.split(".")) <= max(have, default=(0, 0))


def compile_library(target: Path, sources: tuple[Path, ...], options: tuple[str, ...]) -> None:
    """A shared library for a node from these sources. Raises BuildError."""
    _compile(target, tuple(str(source) for source in sources), (*_library(target.name), *options))


def write_archive(output: Path, content: list[tuple[str, bytes, int]]) -> str:
    """Write a tar.gz of names, bytes and modes in one rename; its sha256. The same content gives the same bytes."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    try:
        _pack(partial, content)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return hashlib.sha256(output.read_bytes()).hexdigest()


def archive_folder(output: Path, folder: Path) -> str:
    """`write_archive` of all files of an engine's folder; programs and libraries alone are executable, by any umask."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    runs = {path for path in files if path.suffix in (".so", ".1") or path.parent.name == "bin"}
    names = [(path, path.relative_to(folder).as_posix()) for path in files]
    return write_archive(output, [(name, path.read_bytes(), 0o755 if path in runs else 0o644) for path, name in names])


def build_engine(output: Path, release: str | None = None) -> Artefact:
    """Write the artefact to `output`; the same sources and compiler give the same bytes. Raises BuildError."""
    chosen = release or default_release()
    with room("eai-engine") as scratch:
        files = compile_engine(scratch, chosen)
        info = EngineInfo("reference", chosen, PROTOCOL, needed_glibc(files), platform.machine(), transports())
        described = (json.dumps(asdict(info), indent=2) + "\n").encode()
        content = [("engine.json", described, 0o644)]
        content += [(p.relative_to(scratch).as_posix(), p.read_bytes(), 0o755) for p in files]
        sha256 = write_archive(output, content)
    return Artefact(output, sha256, info)


def _pack(path: Path, content: list[tuple[str, bytes, int]]) -> None:
    """A tar.gz without times and owners in it."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data, mode in content:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
