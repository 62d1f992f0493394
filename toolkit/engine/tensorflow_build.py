"""Building the engine `tensorflow`: an adapter to TensorFlow's own distributed runtime, so Python, and one small
library that turns TensorFlow's sockets inward. Nothing of TensorFlow is needed here.

Artefact (a folder, or tar.gz of it):
    engine.json                     {"engine": "tensorflow", "release": R, "protocol": "1", "glibc": "2.34",
                                     "machine": ..., "transports": ["tcp"], "tensorflow": ["2.21"]}
    bin/elastic-ai-tfserver         the server, a Python program
    lib/elastic_ai_tfserver/        its modules
    lib/libelastic_ai_inward.so     what is preloaded into TensorFlow's processes, on both sides
    python/                         the client (PYTHONPATH of the program)
    client/                         what shows the lease's GPUs without TensorFlow: NVML and nvidia-smi
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from toolkit.engine.build import (
    FLAGS,
    SOURCES,
    Artefact,
    EngineInfo,
    archive_folder,
    checked,
    compile_library,
    compile_shown,
    needed_glibc,
)
from toolkit.errors import BuildError
from validation.base.temporary import room
from validation.rules.release import release as toolkit_release

TENSORFLOW = SOURCES / "tensorflow"
PROTOCOL = "1"  # WIRE in tensorflow/server/elastic_ai_tfserver and in the client's lease.py
#: Minor releases whose names the client knows (KNOWN in tensorflow/python/elastic_ai_tensorflow/attach.py).
RELEASES = ("2.21",)
LAUNCHER, MODULES, INWARD = "elastic-ai-tfserver", "elastic_ai_tfserver", "libelastic_ai_inward.so"
_ASK = """
import importlib.util, json
from importlib.metadata import packages_distributions, version
spec, owners = importlib.util.find_spec("tensorflow"), packages_distributions().get("tensorflow", [])
print(json.dumps([version(owners[0]), spec.origin] if spec and spec.origin and owners else None))
"""


@dataclass(frozen=True)
class TensorflowInfo(EngineInfo):
    """engine.json; with the releases of TensorFlow that it is for."""

    tensorflow: tuple[str, ...] = ()


def ask(python: str) -> tuple[str, Path]:
    """Version of the TensorFlow of that Python, and the folder of its packages. BuildError with a sentence where it has
    none, or another release."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError) as fault:
        raise BuildError(f"--tensorflow {python}: not a Python that runs here ({fault})") from None
    if found is None:
        raise BuildError(f"--tensorflow {python}: it has no TensorFlow; install it there, or give another Python")
    version, origin = found
    if ".".join(version.split(".")[:2]) not in RELEASES:
        raise BuildError(f"--tensorflow {python}: TensorFlow {version}; the engine knows {' and '.join(RELEASES)}")
    return version, Path(origin).parent.parent


def _files() -> dict[str, tuple[Path, int]]:
    """Where each file of Python goes, whence it comes, and its mode."""
    found = {f"bin/{LAUNCHER}": (TENSORFLOW / "server" / LAUNCHER, 0o755)}
    for source, target in ((TENSORFLOW / "server" / MODULES, f"lib/{MODULES}"), (TENSORFLOW / "python", "python")):
        for path in sorted(source.rglob("*.py")):
            found[f"{target}/{path.relative_to(source).as_posix()}"] = (path, 0o644)
    return found


def default_release() -> str:
    """The toolkit's version and the sources' hash: client and server of one release are of the same sources."""
    digest = hashlib.sha256(repr(FLAGS).encode())
    for folder in (TENSORFLOW, SOURCES / "nvml"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{toolkit_release()}-{digest.hexdigest()[:8]}"


def build_folder(folder: Path, release: str | None = None) -> TensorflowInfo:
    """The engine in `folder`. Raises BuildError."""
    chosen = checked(release or default_release())
    for name, (source, mode) in _files().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(mode)
    inward = folder / "lib" / INWARD
    compile_library(inward, (TENSORFLOW / "preload" / "inward.c",), ("-ldl",))
    glibc = needed_glibc([inward, *compile_shown(folder)])
    info = TensorflowInfo("tensorflow", chosen, PROTOCOL, glibc, platform.machine(), ("tcp",), RELEASES)
    (folder / "engine.json").write_text(json.dumps(asdict(info), indent=2) + "\n")
    return info


def build_archive(output: Path, release: str | None = None) -> Artefact:
    """The same as an archive; the same sources and compiler give the same bytes. Raises BuildError."""
    with room("eai-engine") as scratch:
        info = build_folder(scratch, release)
        sha256 = archive_folder(output, scratch)
    return Artefact(output, sha256, info)
