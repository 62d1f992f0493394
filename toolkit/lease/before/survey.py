"""Finds on a GPU server what it has for programs of its users, as root (role remoting_server).

An image is looked into by a container of it that has no network, no rights, and nothing of the server; what was found
is kept for as long as the image is there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from toolkit.lease import LeaseError
from toolkit.lease.before.mounts import network_mounts
from toolkit.lease.before.offers import MOST_IMAGES, ImageThere, Offers, PythonThere, parse_python
from toolkit.lease.fields import DamagedDocument
from toolkit.lease.server.container import docker

#: What the server's users find, and administrators.
PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: Where sites put programs of their own: environments of Python, CUDA.
BINS = ("/opt/*/bin", "/opt/*/*/bin", "/usr/local/*/bin", "/snap/bin")
PYTHON = "/usr/bin/python3"
LOOK_S = 60.0
KEPT = "images.json"
#: Runs in any Python 3 of a server or an image, and imports nothing of what it finds.
ASK = r"""
import sys
sys.path[:] = [one for one in sys.path if one]
import json, os, re, sysconfig
paths = sysconfig.get_paths()
own = {os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib")}
own |= {os.path.join(one, "lib-dynload") for one in own}
modules, places = set(), {}
for folder in sys.path:
    if os.path.realpath(folder) in own or not os.path.isdir(folder):
        continue
    for name in os.listdir(folder):
        whole, top = os.path.join(folder, name), name.split(".")[0]
        known = name.endswith((".py", ".so", ".pth")) if os.path.isfile(whole) else "." not in name
        if known and top.isidentifier() and not name.endswith(".pth") and top != "__pycache__":
            modules.add(top)
            places.setdefault(top, whole)
def text(*parts):
    try:
        with open(os.path.join(*parts), errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""
def first(pattern, words):
    found = re.search(pattern, words, re.M)
    return found.group(1) if found else ""
torch = text(places.get("torch", "/nowhere"), "version.py")
build = text(places.get("tensorflow", "/nowhere"), "python", "platform", "build_info.py")
tensorflow = ""
if "tensorflow" in places:
    folder = os.path.dirname(places["tensorflow"])
    for name in sorted(os.listdir(folder)):
        tensorflow = tensorflow or first(r"^(?:intel_)?tensorflow(?:_cpu|_gpu)?-([0-9][^-]*)\.dist-info$", name)
cuda = first(r"^cuda *(?::[^=]*)?= *['\"]([^'\"]+)", torch)
gpus = "is_cuda_build': True" in build.replace('"', "'")
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "modules": sorted(modules),
    "torch": first(r"^__version__ *(?::[^=]*)?= *['\"]([^'\"]+)", torch),
    "torch_cuda": cuda,
    "tensorflow": tensorflow,
    "tensorflow_cuda": first(r"['\"]cuda_version['\"] *: *['\"]([0-9.]+)", build) if gpus else "",
}))
"""
#: In an image: the programs on its path, one a line, an empty line, and the answer of its Python, if it has one.
_INSIDE = r"""
IFS=:
for folder in $PATH; do for file in "$folder"/*; do [ -x "$file" ] && [ ! -d "$file" ] && echo "${file##*/}"; done; done
echo
command -v python3 >/dev/null && exec python3 -c "$1"
exit 0
"""


def python_of(path: str = PYTHON) -> PythonThere | None:
    """The server's own, None where it has none or it does not answer."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", ASK], capture_output=True, text=True, check=False, timeout=LOOK_S, cwd="/",
            stdin=subprocess.DEVNULL, env={"PATH": ":".join(PATH), "LC_ALL": "C", "LANGUAGE": ""},
        )  # fmt: skip
        found = parse_python(json.loads(done.stdout))
        return replace(found, names=_names_of(Path(path))) if found else None
    except (OSError, subprocess.TimeoutExpired, ValueError, DamagedDocument):
        return None


def _names_of(python: Path) -> tuple[str, ...]:
    """By which commands users start it: a server may have another `python`."""
    named = {one.name: one for folder in reversed(PATH) for one in Path(folder).glob("python*")}
    return tuple(sorted(name for name, one in named.items() if one.resolve() == python.resolve()))


def commands_of(folders: Sequence[str] = PATH) -> tuple[str, ...]:
    """Programs in these folders."""
    found: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            found |= {one.name for one in os.scandir(folder) if one.is_file() and os.access(one.path, os.X_OK)}
    return tuple(sorted(name for name in found if name.isprintable()))


def bins_of(patterns: Sequence[str] = BINS) -> tuple[str, ...]:
    """Folders of further programs."""
    found = {str(one) for pattern in patterns for one in Path("/").glob(pattern[1:]) if one.is_dir()}
    return tuple(sorted(one for one in found if one.isprintable()))


def _inside(identity: str) -> tuple[tuple[str, ...], PythonThere | None]:
    """The commands of an image and its Python, as far as it can be looked at."""
    words = ["run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    words += ["--user=65534:65534", "--pids-limit=64", "--memory=512m", "--pull=never", "--workdir=/"]
    words += ["--env=LC_ALL=C", "--entrypoint=sh", identity, "-c", _INSIDE, "sh", ASK]
    done = docker(*words, timeout_s=LOOK_S)
    names, _, answer = done.stdout.partition("\n\n")
    commands = tuple(sorted({name for name in names.split("\n") if name and name.isprintable()}))
    try:
        return commands, parse_python(json.loads(answer))
    except (ValueError, DamagedDocument):
        return commands, None


def _described(said: Any, kept: dict[str, Any]) -> ImageThere:
    identity, config = str(said["Id"]), said.get("Config") or {}
    variables = dict(str(one).partition("=")[::2] for one in config.get("Env") or [])
    if identity not in kept:
        commands, python = _inside(identity)
        kept[identity] = {"commands": list(commands), "python": asdict(python) if python else None}
    python = parse_python(kept[identity]["python"])
    version = variables.get("CUDA_VERSION", "")
    cuda = version if re.fullmatch(r"[0-9.]{1,20}", version) else ""
    return ImageThere(
        names=tuple(sorted((str(one) for one in said.get("RepoTags") or []), key=lambda name: (len(name), name))),
        identity=identity,
        size_bytes=int(said.get("Size") or 0),
        cuda=cuda or (python.torch_cuda or python.tensorflow_cuda if python else ""),
        python=python,
        commands=tuple(str(one) for one in kept[identity]["commands"]),
    )


def images_of(cache: Path) -> tuple[ImageThere, ...]:
    """Images that have a name. cache: file that keeps what was found in them."""
    try:
        listed = docker("image", "ls", "--quiet", "--no-trunc", "--filter=dangling=false")
        identities = list(dict.fromkeys(listed.stdout.split()))[:MOST_IMAGES]
        said = json.loads(docker("image", "inspect", *identities).stdout) if identities else []
    except (LeaseError, ValueError):
        return ()  # no Docker here, or none that answers
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        kept = {key: value for key, value in json.loads(cache.read_text()).items() if key in identities}
    found = []
    for one in said:
        with suppress(LeaseError, KeyError, TypeError, ValueError, AttributeError):
            found.append(_described(one, kept))
    with suppress(OSError):
        cache.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        cache.write_text(json.dumps(kept))
    return tuple(sorted((one for one in found if one.names), key=lambda one: one.names))


def survey(folder: Path) -> Offers:
    """This server. folder: where what was found in images is kept."""
    return Offers(python_of(), commands_of(), bins_of(), network_mounts(), images_of(folder / KEPT))
