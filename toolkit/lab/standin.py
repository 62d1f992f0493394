"""Systems that lab nodes of another base stand in for: what they show of that system's identity and manners.

One YAML file for each in toolkit/lab/systems/; its name is the system's key in the tables of the roles.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from toolkit.errors import LabError
from toolkit.lab.debrepo import Served, vendor_repositories
from toolkit.lab.fake_packages import Name, StrictModel
from toolkit.lab.network import APT_CACHE_PORT
from toolkit.lab.sh import run
from toolkit.lab.spec import VENDOR_HOST, LabSpec, NodeSpec
from validation.model.load import ConfigError, load_yaml

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+$")]
KEYRING = "usr/share/keyrings/elastic-ai-lab.asc"
Variable = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]+$")]
#: Words that texts of a node may have in braces.
WORDS = ("name", "management", "gateway", "proxy", "claim")
#: Where programs of the base lie that the system shown has not. The base itself needs them while an image is made.
HIDDEN = "usr/local/libexec/elastic-ai-lab/hidden"
#: A Python of EL's version, where the machine has one, and the name by which EL 9's own tools call theirs.
PYTHON = "opt/elastic-ai-lab/python"
PLATFORM_PYTHON = "usr/libexec/platform-python"
RPM_KEY = "etc/pki/rpm-gpg/RPM-GPG-KEY-elastic-ai-lab"


class System(StrictModel):
    """What an image and its nodes get of a system.

    packages: those of the base that go into the image too; repository: where the system's own names come from, of which
    `installed` are in the image and `held` on hold there; enabled: units that run from the first boot; off: of the
    packages' units those that do not; hidden: files of the base that the system has not; files: their text, in the
    image; commands: run in it last; node_files: in each node, where they are not empty; claims: how the site configures
    the fabric port, by turns from node to node; stack: the stack release of the lab's inventory; stated: variables of
    it that a site states of its own repositories, with the values of this stand-in; python: the
    version that Ansible's modules run on, where the machine has one to copy.
    """

    sources: tuple[str, ...] = Field(min_length=1)
    packages: tuple[Name, ...] = ()
    repository: Name | None = None
    stack: Name = "rehearsal"
    stated: dict[Variable, str] = Field(default_factory=dict)
    python: Literal["", "3.9", "3.12"] = ""
    enabled: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    hidden: tuple[AbsolutePath, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    installed: tuple[Name, ...] = ()
    held: tuple[Name, ...] = ()
    claims: tuple[str, ...] = Field(min_length=1)
    files: dict[AbsolutePath, str]
    node_files: dict[AbsolutePath, str]

    @model_validator(mode="after")
    def _held_are_there(self) -> System:
        absent = sorted(set(self.held) - {*self.installed, *self.packages})
        if absent:
            raise ValueError(f"on hold, but not in the image: {', '.join(absent)}")
        return self


@dataclass(frozen=True)
class Guise:
    """A system's data with what its image needs of the stand-ins' repository: packages and the key that signs it."""

    key: str
    system: System
    packages: tuple[Path, ...]
    signer: Path
    #: The tree of a Python of the system's version, None where the machine has none.
    python: Path | None = None

    @property
    def recipe(self) -> str:
        """Changes whenever the image would."""
        parts = [self.system.model_dump_json(), self.signer.read_text(), Path(__file__).read_text(), str(self.python)]
        return "\n".join([*parts, *(hashlib.sha256(package.read_bytes()).hexdigest() for package in self.packages)])

    def dress(self, root: Path) -> None:
        """Give a base image the system's identity, its packages and its repository."""
        for name in self.system.files:
            # A later version of the package that owns the file leaves it as it is.
            if (root / name.lstrip("/")).exists():
                run(["chroot", str(root), "dpkg-divert", "--quiet", "--local", "--no-rename", "--add", name])
        write(root, self.system.files)
        if self.system.off:
            run(["chroot", str(root), "systemctl", "disable", "--quiet", *self.system.off])
        (self._rpms if has_rpms(self.key) else self._debs)(root)
        if self.system.enabled:
            run(["chroot", str(root), "systemctl", "enable", "--quiet", *self.system.enabled])
        if self.system.held:
            run(["chroot", str(root), "apt-mark", "hold", *self.system.held])
        if self.system.python:
            self._python(root)
        for command in self.system.commands:
            run(["chroot", str(root), *command])
        for name in self.system.hidden:
            place = root / HIDDEN / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            (root / name.lstrip("/")).rename(place)

    def _python(self, root: Path) -> None:
        """The interpreter of the modules: a Python of that version, else the base's."""
        link = root / PLATFORM_PYTHON
        link.parent.mkdir(parents=True, exist_ok=True)
        if self.python is None:
            link.symlink_to("/usr/bin/python3")
            return
        copy = root / PYTHON
        shutil.copytree(self.python, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "test", "share"))
        (root / "etc/ld.so.conf.d/elastic-ai-lab-python.conf").write_text(f"/{PYTHON}/lib\n")
        run(["chroot", str(root), "ldconfig"])
        link.symlink_to(f"/{PYTHON}/bin/python{self.system.python}")
        run(["chroot", str(root), f"/{PLATFORM_PYTHON}", "-c", "import ctypes, json, ssl, zlib"])

    def _debs(self, root: Path) -> None:
        """The repository as apt reads it, and the packages installed."""
        if self.system.repository:
            shutil.copyfile(self.signer, root / KEYRING)
            address = f"http://{VENDOR_HOST}/{self.system.repository}/{self.key}/"
            # Ubuntu's own entries are of deb822 since 23.10.
            line = f"deb [signed-by=/{KEYRING}] {address} ./\n"
            stanza = f"Types: deb\nURIs: {address}\nSuites: ./\nSigned-By: /{KEYRING}\n"
            name, text = ("list", line) if self.key == "ubuntu2204" else ("sources", stanza)
            (root / f"etc/apt/sources.list.d/lab-system.{name}").write_text(text)
        self._install(root, ["dpkg", "--install"])

    def _rpms(self, root: Path) -> None:
        """The repository as dnf reads it, and the packages installed, by a database of the node's own."""
        write(root, {f"/{RPM_KEY}": self.signer.read_text()})
        section = [
            f"[{self.system.repository}]",
            "name=Stand-in of the Elastic AI lab",
            f"baseurl=http://{VENDOR_HOST}/{self.system.repository}/{self.key}/",
            f"gpgkey=file:///{RPM_KEY}",
            "gpgcheck=1",
            "repo_gpgcheck=1",
        ]
        write(root, {f"/etc/yum.repos.d/{self.system.repository}.repo": "\n".join([*section, ""])})
        run(["chroot", str(root), "rpm", "--import", f"/{RPM_KEY}"])
        self._install(root, ["rpm", "--install"])

    def _install(self, root: Path, command: list[str]) -> None:
        folder = root / "var/cache/elastic-ai-lab"
        folder.mkdir(parents=True)
        copies = [Path(shutil.copy2(package, folder)) for package in self.packages]
        if copies:
            run(["chroot", str(root), *command, *(f"/{copy.relative_to(root)}" for copy in copies)])
        shutil.rmtree(folder)


def pyenv_tree(version: str) -> Path | None:
    """The tree of the newest Python of that version which pyenv has on this machine; None without one."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [path for path in versions.glob(f"{version}.*") if (path / f"bin/python{version}").exists()]
    return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], default=None)


def has_rpms(key: str) -> bool:
    """Whether the system's packages are RPMs."""
    return key.startswith("el")


def repositories(key: str, say: Callable[[str], None]) -> Served:
    """The stand-ins' repositories that nodes of the system are served."""
    if not has_rpms(key):
        return vendor_repositories(say)
    from toolkit.lab.rpmrepo import rpm_repositories  # here, for no other system needs them

    return rpm_repositories(key, say)


def load_system(key: str) -> System:
    """The packaged data of a system; LabError with file and line for a fault."""
    path = Path(str(resources.files("toolkit.lab") / "systems" / f"{key}.yml"))
    try:
        return load_yaml(path, System)
    except ConfigError as e:
        raise LabError(str(e)) from e


def guise(key: str, served: Served) -> Guise:
    """What makes nodes stand in for the system; LabError where the stand-ins' repository lacks a package."""
    system = load_system(key)
    folder = served.folder / str(system.repository) / key
    pattern, data = ("-[0-9]*.rpm", f"vendor/{key}") if has_rpms(key) else ("_*.deb", "vendor")
    packages = []
    for name in system.installed:
        found = sorted(folder.glob(f"{name}{pattern}"))
        if not found:
            raise LabError(f"toolkit/lab/systems/{key}.yml: installed: {name} is not in {data}/{system.repository}.yml")
        packages.append(found[0])  # the oldest, so that an upgrade would bring another one
    python = pyenv_tree(system.python) if system.python else None
    return Guise(key, system, tuple(packages), served.key, python)


def node_texts(key: str, spec: LabSpec, node: NodeSpec) -> dict[str, str]:
    """The system's files of one node: path -> text."""
    system = load_system(key)
    values = (
        node.name,
        spec.management_address(node),
        f"10.77.{spec.index}.1",
        f"http://10.77.{spec.index}.1:{APT_CACHE_PORT}",
        system.claims[node.number % len(system.claims)],
    )
    found = {}
    for path, template in system.node_files.items():
        text = template
        for word, value in zip(WORDS, values, strict=True):
            text = text.replace(f"{{{word}}}", value)
        if text:
            found[path] = text
    return found


def write(root: Path, files: dict[str, str]) -> None:
    """Write them below `root`; a network configuration may hold secrets, so it is root's alone."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o600 if name.startswith(("/etc/netplan/", "/etc/NetworkManager/")) else 0o644)
