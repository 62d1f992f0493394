"""Systems that lab nodes of another base stand in for: what they show of that system's identity and manners.

One YAML file for each in toolkit/lab/systems/; its name is the system's key in the tables of the roles.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from toolkit.errors import LabError
from toolkit.lab.debrepo import Served
from toolkit.lab.fake_packages import Name, StrictModel
from toolkit.lab.sh import run
from toolkit.lab.spec import VENDOR_HOST, LabSpec, NodeSpec
from validation.load import ConfigError, load_yaml

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+$")]
KEYRING = "usr/share/keyrings/elastic-ai-lab.asc"
#: Words that texts of a node may have in braces.
WORDS = ("name", "management", "gateway", "claim")


class System(StrictModel):
    """What an image and its nodes get of a system.

    packages: those of the base that go into the image too; repository: where the system's own names come from, of which
    `installed` are in the image and `held` on hold there; enabled: units that run from the first boot; files: their
    text, in the image; node_files: in each node; claims: how the site configures the fabric port, by turns from node to
    node.
    """

    sources: tuple[str, ...] = Field(min_length=1)
    packages: tuple[Name, ...] = ()
    repository: Name | None = None
    enabled: tuple[str, ...] = ()
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
    debs: tuple[Path, ...]
    signer: Path

    @property
    def recipe(self) -> str:
        """Changes whenever the image would."""
        parts = [self.system.model_dump_json(), self.signer.read_text(), Path(__file__).read_text()]
        return "\n".join([*parts, *(hashlib.sha256(deb.read_bytes()).hexdigest() for deb in self.debs)])

    def dress(self, root: Path) -> None:
        """Give a base image the system's identity, its packages and its repository."""
        if self.system.repository:
            shutil.copyfile(self.signer, root / KEYRING)
            source = f"deb [signed-by=/{KEYRING}] http://{VENDOR_HOST}/{self.system.repository}/{self.key}/ ./\n"
            (root / "etc/apt/sources.list.d/lab-system.list").write_text(source)
        for name in self.system.files:
            # A later version of the package that owns the file leaves it as it is.
            if (root / name.lstrip("/")).exists():
                run(["chroot", str(root), "dpkg-divert", "--quiet", "--local", "--no-rename", "--add", name])
        write(root, self.system.files)
        if self.debs:
            folder = root / "var/cache/apt/archives"
            copies = [Path(shutil.copy2(deb, folder)) for deb in self.debs]
            run(["chroot", str(root), "dpkg", "--install", *(f"/{copy.relative_to(root)}" for copy in copies)])
            for copy in copies:
                copy.unlink()
        if self.system.enabled:
            run(["chroot", str(root), "systemctl", "enable", "--quiet", *self.system.enabled])
        if self.system.held:
            run(["chroot", str(root), "apt-mark", "hold", *self.system.held])


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
    debs = []
    for name in system.installed:
        found = sorted(folder.glob(f"{name}_*.deb"))
        if not found:
            raise LabError(f"toolkit/lab/systems/{key}.yml: installed: {name} is not in vendor/{system.repository}.yml")
        debs.append(found[0])  # the oldest, so that an upgrade would bring another one
    return Guise(key, system, tuple(debs), served.key)


def node_texts(key: str, spec: LabSpec, node: NodeSpec) -> dict[str, str]:
    """The system's files of one node: path -> text."""
    system = load_system(key)
    values = (
        node.name,
        spec.management_address(node),
        f"10.77.{spec.index}.1",
        system.claims[node.number % len(system.claims)],
    )
    found = {}
    for path, template in system.node_files.items():
        text = template
        for word, value in zip(WORDS, values, strict=True):
            text = text.replace(f"{{{word}}}", value)
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
