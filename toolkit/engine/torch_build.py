"""Building the engine `torch`: client plug-in and server, compiled against the PyTorch of a given Python.

PyTorch's C++ interface holds for a minor release, so there is one pair of libraries for each; what they are compiled
against is asked of that Python itself, and nothing of PyTorch is needed by the toolkit's own. Objects are kept by their
content: a second build compiles only what changed.

Artefact (a folder, or tar.gz of it):
    engine.json                             {"engine": "torch", "release": R, "protocol": "5", "glibc": "2.34",
                                             "machine": ..., "transports": ["tcp", "verbs"], "torch": ["2.13"]}
    bin/elastic-ai-torchserver              the server, a Python program
    lib/elastic_ai_torchserver/             its modules
    lib/libelastic_ai_cuda_memory.so        what it preloads on a GPU: memory is overwritten, and counted for a lease
    lib/libelastic_ai_torchserver-2.13.so   what it loads, for the PyTorch that it imports
    lib/torch-operators.txt                 the operators that it allows
    lib/libelastic_ai_torch-2.13.so         what the plug-in loads, for the PyTorch of the user's program
    python/                                 the plug-in (PYTHONPATH of the program)
    client/                                 what shows the lease's GPUs without CUDA: NVML and nvidia-smi
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit.engine.build import (
    SOURCES,
    VERBS,
    EngineInfo,
    archive_folder,
    compile_library,
    compile_shown,
    needed_glibc,
    transports,
)
from toolkit.errors import BuildError
from toolkit.loudness import progress
from validation.base.files import cache_folder
from validation.base.temporary import room
from validation.rules.release import release as toolkit_release

TORCH = SOURCES / "torch"
PROTOCOL = "5"  # WIRE_VERSION in torch/shared/wire.h
LAUNCHER = "elastic-ai-torchserver"
OPERATORS = "torch-operators.txt"
MODULES = "elastic_ai_torchserver"
#: For any release of PyTorch and of CUDA.
CUDA_MEMORY = "libelastic_ai_cuda_memory.so"
CUDA_MEMORY_SOURCES = ("cuda_memory.c", "cuda_runtime.c")
#: Headers of PyTorch that most sources include.
HEADERS = "shared/torch_headers.h"
#: Folders of sources of each library.
LIBRARIES = {"libelastic_ai_torch": ("client", "shared"), "libelastic_ai_torchserver": ("server", "shared")}
ALL_FLAGS = ("-O2", "-g0", "-fPIC", "-fstack-protector-strong", "-Wall", "-Wextra", "-pthread")
FLAGS = ("-std=c++20", *ALL_FLAGS, "-Wno-unused-parameter")
#: Of bytes by RDMA, which both libraries have, each its own.
C_FLAGS = ("-std=c11", *ALL_FLAGS, "-fvisibility=hidden")
LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,--build-id=none", "-pthread")
#: For tests; the program that loads such a library preloads the sanitizers' own.
#: `vptr` is left out: it asks for type information that torch's libraries keep to themselves.
SANITIZERS = (
    "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr",
    "-fno-sanitize-recover=all",
)  # fmt: skip
#: Objects that stay in the cache.
KEPT = 256
#: The oldest release whose operators and hooks the engine is written for.
OLDEST = (2, 9)
_ASK = """
import importlib.util, json, os
spec = importlib.util.find_spec("torch")
if spec is None or not spec.origin:
    print(json.dumps({"fault": "No module named 'torch'"}))
else:
    folder, told = os.path.dirname(spec.origin), {}
    with open(os.path.join(folder, "version.py")) as text:
        exec(text.read(), told)
    print(json.dumps({"version": told["__version__"], "git": str(told.get("git_version")), "folder": folder}))
"""


@dataclass(frozen=True)
class Torch:
    """The PyTorch of a Python: version, the commit that it was built from, its folder, and its C++ ABI (of libstdc++'s
    two the newer one, since 2.7)."""

    version: str
    git: str
    folder: Path
    abi: int = 1

    @property
    def minor(self) -> str:
        """Release as 2.13, for which a library holds."""
        return ".".join(self.version.split(".")[:2])

    @property
    def numbers(self) -> tuple[int, int]:
        """The same in numbers."""
        major, minor = self.minor.split(".")
        return int(major), int(minor)


@dataclass(frozen=True)
class TorchInfo(EngineInfo):
    """engine.json of this engine: `torch` are the minor releases of PyTorch that it has libraries for."""

    torch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Made:
    """What was built: a folder (sha256 is "") or an archive."""

    path: Path
    sha256: str
    info: EngineInfo


def ask(python: str) -> Torch:
    """The PyTorch of that Python. BuildError with a sentence where it has none, or no headers."""
    try:
        done = _english([python, "-c", _ASK])
        said = done.stdout.strip()
        answer: dict[str, Any] = json.loads(said.splitlines()[-1]) if said else {"fault": done.stderr.strip()}
    except (OSError, ValueError) as fault:
        raise BuildError(f"--torch {python}: not a Python that runs here ({fault})") from None
    if "fault" in answer:
        last = (answer["fault"].splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise BuildError(f"--torch {python}: it has no PyTorch ({last}); install torch there, or give another Python")
    if not re.match(r"\d+\.\d+", answer["version"]):
        raise BuildError(f"--torch {python}: PyTorch {answer['version']!r} is no release")
    found = Torch(str(answer["version"]), answer["git"], Path(answer["folder"]))
    if found.numbers < OLDEST:
        least = ".".join(str(number) for number in OLDEST)
        raise BuildError(f"--torch {python}: PyTorch {found.version}; the engine is for {least} and newer")
    if not (found.folder / "include/ATen/core/Tensor.h").is_file():
        raise BuildError(f"--torch {python}: {found.folder} has no headers (include/); install PyTorch's own wheel")
    return found


def missing_tools() -> str:
    """What the machine lacks for building, as one sentence; "" when it has everything."""
    lacks = [name for name, tool in (("g++", "g++"), ("binutils", "objdump")) if not shutil.which(tool)]
    return f"missing packages: {' '.join(lacks)}; install them with: apt-get install {' '.join(lacks)}" if lacks else ""


def _sources(library: str) -> list[Path]:
    own = [path for folder in LIBRARIES[library] for path in sorted((TORCH / folder).rglob("*.cc"))]
    return own and [*own, *(SOURCES / name for name in VERBS)]


def _reads(source: Path) -> list[Path]:
    """The source and those of the engine's own files that it includes, by any way."""
    seen: list[Path] = []
    ahead = [source]
    while ahead:
        path = ahead.pop()
        if path in seen:
            continue
        seen.append(path)
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            places = (path.parent / name, TORCH / name, SOURCES / name)
            ahead += [place.resolve() for place in places if place.is_file()][:1]
    return sorted(seen)


def _digest(words: object, paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(repr(words).encode())
    for path in paths:
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _english(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program whose words are read: without translations."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
    )  # fmt: skip


def _compiler() -> str:
    try:
        return _english(["g++", "--version"]).stdout.split("\n")[0]
    except FileNotFoundError as fault:
        raise BuildError(missing_tools() or str(fault)) from None


def _run(command: Sequence[str], what: str) -> None:
    try:
        done = _english(command)
    except FileNotFoundError as fault:
        raise BuildError(missing_tools() or str(fault)) from None
    if done.returncode:
        raise BuildError(missing_tools() or f"g++ failed for {what}:\n{done.stderr.strip()}")


def _name(source: Path) -> str:
    return source.relative_to(SOURCES).as_posix().removeprefix("torch/")


def cxx(torch: Torch, more: Sequence[str]) -> list[str]:
    """The compiler for sources of C++ against that PyTorch. `more`: of one kind of build."""
    include = torch.folder / "include"
    command = ["g++", *FLAGS, *more, f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}", f"-I{TORCH}", f"-I{SOURCES}"]
    return [*command, "-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]


def _compile(source: Path, torch: Torch, more: Sequence[str], kept: Path, headers: Path | None) -> None:
    """The object of a source as `kept`, in one rename. `headers`: PyTorch's own, which were read before."""
    if source.suffix == ".c":
        command = ["gcc", *C_FLAGS, *more, *(["-DWITH_VERBS"] if "verbs" in transports() else [])]
    else:
        command = cxx(torch, more)
    ahead = ["-include", str(headers)] if headers is not None else []
    with room("eai-torch", kept.parent) as scratch:
        _run([*command, *ahead, "-c", str(source), "-o", str(scratch / "object.o")], str(source.relative_to(SOURCES)))
        (scratch / "object.o").replace(kept)


def _of_torch(source: Path) -> bool:
    """Whether a source, or what it includes of the engine's own, includes PyTorch."""
    return any(re.search(r"#\s*include\s*<(ATen|torch|c10)/", path.read_text()) for path in _reads(source))


@contextmanager
def _read_before(torch: Torch, more: Sequence[str], folder: Path) -> Iterator[Path | None]:
    """PyTorch's headers as g++ has read them: of a source that includes them, reading is half of the time.

    None where g++ cannot take what it has written, as on a kernel that gives it no memory at the same address.
    """
    with room("eai-torch-headers", folder) as scratch:
        header, none = scratch / "torch.h", scratch / "none.cc"
        shutil.copy(TORCH / HEADERS, header)
        none.touch()
        made = [*cxx(torch, more), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        taken = [*cxx(torch, more), "-include", str(header), "-Winvalid-pch", "-Werror", "-fsyntax-only", str(none)]
        progress(f"torch {torch.minor}: reading its headers")
        fits = all(_english(command).returncode == 0 for command in (made, taken))
        yield header if fits else None


def compile_libraries(folder: Path, torch: Torch, *, sanitized: bool = False) -> list[Path]:
    """Both libraries for that PyTorch in `folder`, or the server's alone under sanitizers. Raises BuildError."""
    try:
        objects = cache_folder("engine-torch")
        objects.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as fault:
        raise BuildError(f"objects cannot be kept in this user's cache: {fault}; set XDG_CACHE_HOME") from fault
    more = SANITIZERS if sanitized else ("-D_FORTIFY_SOURCE=2",)
    about = (FLAGS, C_FLAGS, more, transports(), torch.version, torch.git, torch.abi, _compiler())
    parts = {library: _sources(library) for library in LIBRARIES if not sanitized or "server" in LIBRARIES[library]}
    if lacks := [library for library, sources in parts.items() if not sources]:
        raise BuildError(f"{TORCH}: no sources of {' and '.join(lacks)}")
    wanted = {
        source: objects / f"{_digest(about, _reads(source))[:32]}.o" for sources in parts.values() for source in sources
    }
    todo = [source for source, kept in wanted.items() if not kept.is_file()]
    for kept in set(wanted.values()) - {wanted[source] for source in todo}:
        kept.touch()
    of_torch = {source for source in todo if _of_torch(source)}
    with (
        _read_before(torch, more, objects) if of_torch else nullcontext() as headers,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        jobs = {
            pool.submit(_compile, source, torch, more, wanted[source], headers if source in of_torch else None): source
            for source in todo
        }
        try:
            for number, job in enumerate(as_completed(jobs), 1):
                job.result()
                progress(f"torch {torch.minor}: {_name(jobs[job])} compiled, {number} of {len(todo)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    made = [
        _link(folder, library, [wanted[s] for s in sources], torch, sanitized) for library, sources in parts.items()
    ]
    for old in sorted(objects.glob("*.o"), key=os.path.getmtime)[:-KEPT]:
        old.unlink(missing_ok=True)
    return made


def _link(folder: Path, library: str, objects: Sequence[Path], torch: Torch, sanitized: bool) -> Path:
    target = folder / f"{library}-{torch.minor}.so"
    folder.mkdir(parents=True, exist_ok=True)
    link = (*SANITIZERS, *(word for word in LINK if word != "-Wl,-z,defs")) if sanitized else LINK
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    command = ["g++", *link, f"-Wl,-soname,{target.name}", "-o", str(partial), *(str(path) for path in objects)]
    try:
        _run([*command, f"-L{torch.folder / 'lib'}", "-lc10", "-ltorch_cpu", "-ldl"], target.name)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def default_release() -> str:
    """The toolkit's version and the sources' hash: client and server of one release are of the same sources."""
    folders = (TORCH, SOURCES / "nvml", SOURCES / "shared/verbs")
    found = sorted(path for folder in folders for path in folder.rglob("*"))
    paths = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    return f"{toolkit_release()}-{_digest((FLAGS, C_FLAGS, LINK, transports()), paths)[:8]}"


def build_folder(
    folder: Path, torches: Sequence[Torch], release: str | None = None, *, sanitized: bool = False
) -> TorchInfo:
    """The engine for these releases of PyTorch in `folder`; what else is there stays. Raises BuildError."""
    chosen = release or default_release()
    minors = [torch.minor for torch in torches]
    if twice := sorted({minor for minor in minors if minors.count(minor) > 1}):
        raise BuildError(f"--torch: PyTorch {', '.join(twice)} is given twice; one Python for each minor release")
    files = [path for torch in torches for path in compile_libraries(folder / "lib", torch, sanitized=sanitized)]
    files += [*compile_shown(folder), compile_cuda_memory(folder / "lib")]
    _copy(TORCH / "server" / LAUNCHER, folder / "bin" / LAUNCHER, 0o755)
    _copy(TORCH / "server" / OPERATORS, folder / "lib" / OPERATORS, 0o644)
    _copy_tree(TORCH / "server" / MODULES, folder / "lib" / MODULES)
    _copy_tree(TORCH / "python", folder / "python")
    info = TorchInfo(
        "torch", chosen, PROTOCOL, needed_glibc(files), platform.machine(), transports(),
        tuple(torch.minor for torch in sorted(torches, key=lambda one: one.numbers)),
    )  # fmt: skip
    (folder / "engine.json").write_text(json.dumps(asdict(info), indent=2) + "\n")
    return info


def compile_cuda_memory(folder: Path) -> Path:
    """The library by which memory of GPUs is overwritten and counted, in `folder`. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / CUDA_MEMORY
    with room("eai-cuda-memory", folder) as scratch:
        made = scratch / target.name
        compile_library(made, tuple(TORCH / "server" / name for name in CUDA_MEMORY_SOURCES), ("-ldl",))
        made.replace(target)
    return target


def _copy_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            _copy(path, target / path.relative_to(source), 0o644)


def _copy(source: Path, target: Path, mode: int) -> None:
    """In one rename: a server that runs from here goes on with what it had."""
    if not source.is_file():
        raise BuildError(f"{source}: not there")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(source.read_bytes())
    partial.chmod(mode)
    partial.replace(target)


def build_archive(output: Path, torches: Sequence[Torch], release: str | None = None) -> Made:
    """The same as an archive; the same sources, compiler and PyTorch give the same bytes. Raises BuildError."""
    with room("eai-engine") as scratch:
        info = build_folder(scratch, torches, release)
        sha256 = archive_folder(output, scratch)
    return Made(output, sha256, info)
