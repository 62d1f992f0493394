"""PyTorch and TensorFlow in a lab: a copy of a Python's packages that all nodes see, and the engine for it.

Containers see its folder by a mount, virtual machines by 9p.

Nodes have it under /opt/elastic-ai-lab, as a virtual environment of their own Python, so that nothing is fetched or
installed in them: a client's program has the framework's ordinary wheel there, and the engine's server computes by it.
All labs see all copies; each lab names the one that it was given, so that another lab's does not change what its nodes
have.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolkit.engine import tensorflow_build, torch_build
from toolkit.errors import BuildError, LabError
from toolkit.lab.host import give_to_caller
from toolkit.lab.spec import cache_root, state_root

#: Debian has no `python`: this one is the framework's, as after an activation; with both frameworks PyTorch's.
PYTHON = "usr/local/bin/python"
KEPT = 2
COMPILED = "compiled"  # makes another copy than the earlier releases of the toolkit, whose copies are not
NEEDLESS = ("__pycache__", "pip", "pip-*", "include", "*.a", "*.pth")
Say = Callable[[str], None]
_ASK = "import json, sys; print(json.dumps([sys.version_info[0], sys.version_info[1]]))"


@dataclass(frozen=True)
class Packages:
    """A framework in a Python: its version, what else tells this build from another, the folder of all packages, and
    how the engine for it is built. name: of the engine's archive in the cache, without the rest of what it depends on.
    """

    version: str
    build_id: str
    folder: Path
    name: str
    release: str
    build: Callable[[Path], str]

    @property
    def stamp(self) -> str:
        """Changes with the packages beside the framework, by their names and versions."""
        names = sorted(path.name for path in self.folder.glob("*.dist-info"))
        return hashlib.sha256(repr([self.version, self.build_id, names]).encode()).hexdigest()[:12]

    @property
    def copy(self) -> str:
        """The name of the copy that nodes see."""
        return hashlib.sha256(f"{self.stamp} {COMPILED}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Framework:
    """One that nodes can be given. engine: its engine's name, and the option's; commands: on the nodes, by path, with
    the first words that the Python is given; needless: of its packages; ask: the packages of a Python."""

    engine: str
    title: str
    commands: Mapping[str, str]
    needless: tuple[str, ...]
    ask: Callable[[str], Packages]

    @property
    def place(self) -> str:
        """Where nodes see the folder `root`, in which each copy has a folder."""
        return f"/opt/elastic-ai-lab/{self.engine}"

    @property
    def root(self) -> Path:
        """What the nodes of all labs see under `place`."""
        return cache_root() / self.engine

    @property
    def variables(self) -> tuple[str, str, str]:
        """Of the inventory: the engine's archive, its checksum, and the servers' Python."""
        archive = f"remoting_engine_{self.engine}"
        return f"{archive}_artifact", f"{archive}_sha256", f"remoting_server_{self.engine}_python"

    def python_of(self, copy: str) -> str:
        """The Python of a copy, as nodes see it."""
        return f"{self.place}/{copy}/bin/python"

    def given(self, lab: Path) -> list[str]:
        """The copies that the lab of this folder was given, the newest last: its nodes may still run with an older
        one."""
        try:
            return (lab / f"{self.engine}-copies").read_text().split()
        except OSError:
            return []

    def standing(self, hosts: Mapping[str, object]) -> dict[str, object]:
        """The variables of the engine that an inventory of a lab names and has; none where there is none."""
        found = {name: hosts[name] for name in self.variables if name in hosts}
        there = len(found) == len(self.variables) and Path(str(found[self.variables[0]])).is_file()
        return found if there else {}


@dataclass(frozen=True)
class EngineForNodes:
    """The engine's archive, for the inventory, and the name of the packages' copy that it goes with."""

    framework: Framework
    artefact: Path
    sha256: str
    release: str
    copy: str

    def variables(self, artefact: Path) -> dict[str, str]:
        """What the roles need to know."""
        values = (str(artefact), self.sha256, self.framework.python_of(self.copy))
        return dict(zip(self.framework.variables, values, strict=True))

    def placed(self, private: Path) -> dict[str, object]:
        """The same of an archive that is copied into the inventory's folder."""
        copy = private / f"elastic-ai-{self.framework.engine}-{self.release}.tar.gz"
        shutil.copyfile(self.artefact, copy)
        give_to_caller(copy)
        return dict(self.variables(copy.absolute()))


def _torch(python: str) -> Packages:
    """PyTorch there; its engine takes minutes to build."""
    found, release = torch_build.ask(python), torch_build.default_release()
    return Packages(
        found.version, found.git, found.folder.parent, found.minor, release,
        lambda output: torch_build.build_archive(output, [found], release).sha256,
    )  # fmt: skip


def _tensorflow(python: str) -> Packages:
    """TensorFlow there; nothing of it is needed to build the engine."""
    version, folder = tensorflow_build.ask(python)
    release = tensorflow_build.default_release()
    return Packages(
        version, "", folder, "any", release, lambda output: tensorflow_build.build_archive(output, release).sha256
    )


TORCHRUN = "usr/local/bin/torchrun"
TORCH = Framework("torch", "PyTorch", {PYTHON: "", TORCHRUN: "-m torch.distributed.run"}, ("test",), _torch)
TENSORFLOW = Framework("tensorflow", "TensorFlow", {PYTHON: "", "opt/tensorflow/bin/python": ""}, (), _tensorflow)
FRAMEWORKS = (TORCH, TENSORFLOW)


def provide(framework: Framework, python: str, image: Path, say: Say) -> EngineForNodes:
    """A framework of that Python for nodes of that base image, and the engine for it, made where the cache lacks them.

    LabError where the nodes have another Python, BuildError where the engine cannot be built.
    """
    packages = framework.ask(python)
    option, minor = f"--{framework.engine} {python}", _minor_of(framework, python)
    if not (image / f"usr/bin/python{minor}").exists():
        have = sorted(path.name for path in (image / "usr/bin").glob("python3.?*") if path.name[-1].isdigit())
        raise LabError(f"{option}: its packages are for Python {minor}, and nodes of this lab have {have[0]}")
    framework.root.mkdir(parents=True, exist_ok=True)
    with (framework.root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = _built(framework, packages, say)  # first: what it lacks is said before GiBs are copied
        try:
            _copied(framework, packages, python, minor, say)
        except OSError as fault:  # shutil.Error is one too
            words = f"{framework.title} cannot be copied to {framework.root}: {str(fault)[:300]}"
            raise LabError(words) from fault
        return made


def _minor_of(framework: Framework, python: str) -> str:
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        major, minor = json.loads(done.stdout)
    except ValueError:
        raise BuildError(f"--{framework.engine} {python}: not a Python that runs here") from None
    return f"{major}.{minor}"


def _copied(framework: Framework, packages: Packages, python: str, minor: str, say: Say) -> None:
    """The environment that nodes see, and none that no lab has any more."""
    root, target = framework.root, framework.root / packages.copy
    if not target.is_dir():
        say(f"copying {framework.title} {packages.version} for the lab's nodes (once for each release)")
        scratch = root / ".new"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "bin").mkdir(parents=True)
        left_out = shutil.ignore_patterns(*NEEDLESS, *framework.needless)
        shutil.copytree(packages.folder, scratch / f"lib/python{minor}/site-packages", symlinks=True, ignore=left_out)
        _compiled(framework, python, scratch, packages.copy)
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
    used = {copy for lab in (state_root() / "labs").glob("*") for copy in framework.given(lab)}
    for old in sorted(made, key=os.path.getmtime)[:-KEPT]:
        if old.name not in used:
            shutil.rmtree(old, ignore_errors=True)


def _compiled(framework: Framework, python: str, scratch: Path, copy: str) -> None:
    """Compile the packages, because nodes cannot write beside them: each program would compile what it imports.

    Sources that are for another Python are left as they are, which is no failure.
    """
    words = [python, "-m", "compileall", "-q", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    words += ["-s", str(scratch), "-p", f"{framework.place}/{copy}", str(scratch / "lib")]
    subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True)


def _built(framework: Framework, packages: Packages, say: Say) -> EngineForNodes:
    """The engine's archive for it."""
    root = framework.root
    archive = root / f"engine-{packages.name}-{packages.stamp}-{packages.release}.tar.gz"
    note = archive.with_suffix(".sha256")
    if not note.is_file() or not archive.is_file():
        takes = "minutes, once per change" if framework is TORCH else "once per change"
        say(f"building the engine {framework.engine} for {framework.title} {packages.version} ({takes})")
        note.write_text(packages.build(archive))
        for old in sorted(root.glob("engine-*.tar.gz"), key=os.path.getmtime)[:-KEPT]:
            old.unlink()
            old.with_suffix(".sha256").unlink(missing_ok=True)
    return EngineForNodes(framework, archive, note.read_text(), packages.release, packages.copy)


def newest(lab: Path) -> dict[str, str]:
    """By engine, the copy that the lab of this folder was given last."""
    return {one.engine: copies[-1] for one in FRAMEWORKS if (copies := one.given(lab))}


def give(lab: Path, roots: list[Path], copies: Mapping[str, str]) -> dict[str, str]:
    """The copies' commands for the containers with these file systems, and a note in the lab's folder. copies: by
    engine. Returns the commands, for nodes whose file systems are not seen from here: path -> text."""
    scripts: dict[str, str] = {}
    for one in FRAMEWORKS:
        if (copy := copies.get(one.engine)) is not None:
            names = [name for name in one.given(lab) if name != copy]
            (lab / f"{one.engine}-copies").write_text("".join(f"{name}\n" for name in (*names, copy)))
    for one in reversed(FRAMEWORKS):
        for name, first in one.commands.items() if one.given(lab) else ():
            words = " ".join(filter(None, (one.python_of(one.given(lab)[-1]), first)))
            scripts[name] = f'#!/bin/sh\nexec {words} "$@"\n'  # a link would lose the environment
    for root in roots:
        for name, text in scripts.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
    return scripts


def as_shell(scripts: Mapping[str, str]) -> str:
    """The words of a shell that write the commands on the machine where it runs."""
    lines = ["set -e"]
    for name, text in scripts.items():
        path = shlex.quote(f"/{name}")
        lines += [f'mkdir -p "$(dirname {path})"', f"printf %s {shlex.quote(text)} >{path}", f"chmod 755 {path}"]
    return "\n".join(lines) + "\n"
