"""PyTorch in a lab: a copy of a Python's packages that all nodes see, and the engine `torch` built for it.

Nodes have it under PLACE, as a virtual environment of their own Python, so that nothing is fetched or installed in
them: a client's program has PyTorch's ordinary wheel there, and the engine's server computes by it. All labs see all
copies; each lab names the one that it was given, so that another lab's does not change what its nodes have.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from toolkit.engine import torch_build
from toolkit.engine.torch_build import Torch, TorchInfo
from toolkit.errors import BuildError, LabError
from toolkit.lab.host import give_to_caller
from toolkit.lab.spec import cache_root, state_root

#: Where nodes see the folder of `torch_root`, in which each copy has a folder.
PLACE = "/opt/elastic-ai-lab/torch"
#: Debian has no `python`: this one is PyTorch's, as after an activation. A link would lose the environment.
COMMANDS = {"usr/local/bin/python": "", "usr/local/bin/torchrun": " -m torch.distributed.run"}
#: A file in a lab's folder: the copies that it was given, the newest last. Its nodes may still run with an older one.
GIVEN = "torch-copies"
KEPT = 2
Say = Callable[[str], None]
_ASK = "import json, sys; print(json.dumps([sys.version_info[0], sys.version_info[1]]))"


@dataclass(frozen=True)
class TorchForNodes:
    """The engine's archive, for the inventory, and the name of the packages' copy that it goes with."""

    artefact: Path
    sha256: str
    info: TorchInfo
    copy: str

    def variables(self, artefact: Path) -> dict[str, str]:
        """What the roles need to know."""
        return {
            "remoting_engine_torch_artifact": str(artefact),
            "remoting_engine_torch_sha256": self.sha256,
            "remoting_server_torch_python": python_of(self.copy),
        }


def python_of(copy: str) -> str:
    """The Python of a copy, as nodes see it."""
    return f"{PLACE}/{copy}/bin/python"


def torch_root() -> Path:
    """What the nodes of all labs see under PLACE."""
    return cache_root() / "torch"


def provide(python: str, image: Path, say: Say) -> TorchForNodes:
    """PyTorch of that Python for nodes of that base image, and the engine for it, made where the cache lacks them.

    LabError where the nodes have another Python, BuildError where the engine cannot be built.
    """
    torch = torch_build.ask(python)
    minor = _minor_of(python)
    if not (image / f"usr/bin/python{minor}").exists():
        have = sorted(path.name for path in (image / "usr/bin").glob("python3.?*") if path.name[-1].isdigit())
        raise LabError(f"--torch {python}: its packages are for Python {minor}, and nodes of this lab have {have[0]}")
    root = torch_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = _built(root, torch, say)  # first: what it lacks is said before GiBs are copied
        try:
            _copied(root, torch, minor, say)
        except OSError as fault:  # shutil.Error is one too
            raise LabError(f"PyTorch cannot be copied to {root}: {str(fault)[:300]}") from fault
        return made


def _minor_of(python: str) -> str:
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        major, minor = json.loads(done.stdout)
    except ValueError:
        raise BuildError(f"--torch {python}: not a Python that runs here") from None
    return f"{major}.{minor}"


def _stamp(torch: Torch) -> str:
    """Changes with the packages beside PyTorch, by their names and versions."""
    packages = sorted(path.name for path in torch.folder.parent.glob("*.dist-info"))
    return hashlib.sha256(repr([torch.version, torch.git, packages]).encode()).hexdigest()[:12]


def _copied(root: Path, torch: Torch, minor: str, say: Say) -> None:
    """The environment that nodes see, and none that no lab has any more."""
    target = root / _stamp(torch)
    if not target.is_dir():
        say(f"copying PyTorch {torch.version} for the lab's nodes (once for each release)")
        scratch = root / ".new"
        shutil.rmtree(scratch, ignore_errors=True)
        packages = scratch / f"lib/python{minor}/site-packages"
        (scratch / "bin").mkdir(parents=True)
        left_out = shutil.ignore_patterns("__pycache__", "pip", "pip-*", "include", "test", "*.a", "*.pth")
        shutil.copytree(torch.folder.parent, packages, symlinks=True, ignore=left_out)
        (scratch / "bin/python").symlink_to(f"/usr/bin/python{minor}")
        (scratch / "bin/python3").symlink_to("python")
        (scratch / "pyvenv.cfg").write_text(
            f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {minor}\n"
        )
        for path in (scratch, *scratch.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
        scratch.replace(target)
    os.utime(target)
    made = (path for path in root.iterdir() if path.is_dir() and len(path.name) == 12)
    used = {copy for lab in (state_root() / "labs").glob("*") for copy in given(lab)}
    for old in sorted(made, key=os.path.getmtime)[:-KEPT]:
        if old.name not in used:
            shutil.rmtree(old, ignore_errors=True)


def _built(root: Path, torch: Torch, say: Say) -> TorchForNodes:
    """The engine's archive for it."""
    release = torch_build.default_release()
    archive = root / f"engine-{torch.minor}-{_stamp(torch)}-{release}.tar.gz"
    note = archive.with_suffix(".json")
    if not note.is_file() or not archive.is_file():
        say(f"building the engine torch for PyTorch {torch.version} (minutes, once per change)")
        made = torch_build.build_archive(archive, [torch], release)
        note.write_text(json.dumps({"sha256": made.sha256, "info": asdict(made.info)}))
        for old in sorted(root.glob("engine-*.tar.gz"), key=os.path.getmtime)[:-KEPT]:
            old.unlink()
            old.with_suffix(".json").unlink(missing_ok=True)
    told = json.loads(note.read_text())
    info = TorchInfo(**{**told["info"], "transports": ("tcp",), "torch": tuple(told["info"]["torch"])})
    return TorchForNodes(archive, told["sha256"], info, _stamp(torch))


def given(lab: Path) -> list[str]:
    """The copies that the lab of this folder was given, the newest last."""
    try:
        return (lab / GIVEN).read_text().split()
    except OSError:
        return []


def give(lab: Path, roots: list[Path], copy: str) -> None:
    """The copy's `python` and `torchrun` for the containers with these file systems, and a note in the lab's folder."""
    names = [name for name in given(lab) if name != copy]
    (lab / GIVEN).write_text("".join(f"{name}\n" for name in (*names, copy)))
    for root, (name, words) in itertools.product(roots, COMMANDS.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {python_of(copy)}{words} "$@"\n')
        path.chmod(0o755)


def standing(hosts: dict[str, object]) -> dict[str, object]:
    """The variables of the engine that an inventory of a lab names and has; none where there is none."""
    names = ("remoting_engine_torch_artifact", "remoting_engine_torch_sha256", "remoting_server_torch_python")
    found = {name: hosts[name] for name in names if name in hosts}
    there = len(found) == len(names) and Path(str(found[names[0]])).is_file()
    return found if there else {}


def placed(made: TorchForNodes, private: Path) -> dict[str, object]:
    """The same of an archive that is copied into the inventory's folder."""
    copy = private / f"elastic-ai-torch-{made.info.release}.tar.gz"
    shutil.copyfile(made.artefact, copy)
    give_to_caller(copy)
    return dict(made.variables(copy.absolute()))
