"""Data of the RPM packages that stand in for EL's and the vendors' in a lab: names, versions, relations, no content.

One YAML file per repository in toolkit/lab/vendor/SYSTEM/; toolkit.lab.rpmrepo makes signed repositories of them.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, StringConstraints, model_validator

from toolkit.errors import LabError
from toolkit.lab.fake_packages import Name, OneLine, PackagedFile, StrictModel, load_fake_packages, without_alike
from validation.base import project
from validation.model.load import ConfigError, load_yaml

#: The system that has all of them written out; another one takes its.
SYSTEM = "el9"
#: Version and release of an RPM, without its epoch, which is an entry of its own.
Evr = Annotated[str, StringConstraints(pattern=r"^\d[A-Za-z0-9._+~^]*-[A-Za-z0-9][A-Za-z0-9._+~^]*$")]
RpmName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][A-Za-z0-9._+-]+$")]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9@._-]+\.(service|socket|path|timer)$")]
RELATIONS = ("requires", "recommends", "provides", "conflicts", "obsoletes")
#: Folders that the package `filesystem` has, and systemd: below them a folder is of the package that puts a file there.
_OF_ALL = (
    *("/", "/etc", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local"),
    *("/usr/share", "/usr/share/doc", "/var", "/var/lib", "/etc/sysconfig"),
    *("/usr/lib/systemd", "/usr/lib/systemd/system"),
)


class RpmPackage(StrictModel):
    """A package in one or several versions that differ in nothing else.

    stack: what of the stack release `current` is wanted of it ("cuda.nccl"), which is one of its versions, too, in that
    `form`. like: REPOSITORY/PACKAGE of vendor/*.yml whose files it brings. In texts {version} is version and release,
    {upstream} without release, {evr} with the epoch, {machine} the machine's architecture. system: is filled in.
    """

    name: RpmName
    system: str = SYSTEM
    epoch: int | None = None
    versions: list[Evr] = Field(min_length=1)
    stack: Annotated[str, StringConstraints(pattern=r"^([a-z_]+\.[a-z_]+)?$")] = ""
    form: OneLine = "{}-1"
    requires: list[OneLine] = Field(default_factory=list)
    recommends: list[OneLine] = Field(default_factory=list)
    provides: list[OneLine] = Field(default_factory=list)
    conflicts: list[OneLine] = Field(default_factory=list)
    obsoletes: list[OneLine] = Field(default_factory=list)
    like: Annotated[str, StringConstraints(pattern=r"^([a-z0-9-]+/[a-z0-9.+-]+)?$")] = ""
    files: dict[str, PackagedFile] = Field(default_factory=dict)
    scripts: dict[Literal["pre", "post", "preun", "postun"], str] = Field(default_factory=dict)
    services: list[Unit] = Field(default_factory=list)

    def every_version(self) -> list[str]:
        """Those listed, and that of the stack release."""
        wanted = stack_version(self.stack, self.system) if self.stack else ""
        return list(dict.fromkeys([*self.versions, *([self.form.format(wanted)] if wanted else [])]))

    def every_file(self) -> dict[str, PackagedFile]:
        """Its own files, and those of the package that it is like; not what only apt reads."""
        return {**(_files_of(self.like) if self.like else {}), **self.files}

    def every_folder(self) -> list[str]:
        """Folders of its own: rpm removes them with it, where nobody else has something in them."""
        parents = {str(parent) for path in self.every_file() for parent in Path(path).parents}
        return sorted(parents - set(_OF_ALL))

    def every_script(self) -> dict[str, str]:
        """Its own scripts, and what ends its services when it goes for good; an upgrade leaves them alone."""
        found = {str(name): text for name, text in self.scripts.items()}
        if self.services:
            units = " ".join(self.services)
            end = f'[ "$1" -gt 0 ] || systemctl --quiet --no-reload disable --now {units} || :\n'
            for name, text in (("preun", end), ("postun", "systemctl daemon-reload || :\n")):
                found[name] = found.get(name, "") + text
        return found


class Streams(StrictModel):
    """Module streams of a repository: a release's is BRANCH-open, but those of `named` (stream -> branch) are given."""

    module: Name
    default: Name
    named: dict[str, str]
    #: Part of the names of packages that are in no stream, as in the vendor's repository.
    apart: str


class RpmRepository(StrictModel):
    """One repository. With `of_system` it is the system's own: its nodes have it from the beginning.

    takes: the system whose repository of this name has all other packages but those `without`; ".el9" in their texts is
    then ".el10". Module streams are not taken.
    """

    repo: Name
    system: str = SYSTEM
    of_system: bool = False
    takes: Literal["", "el9"] = ""
    without: list[RpmName] = Field(default_factory=list)
    source: str
    streams: Streams | None = None
    packages: list[RpmPackage]

    _alike = model_validator(mode="before")(without_alike)

    @model_validator(mode="after")
    def _each_once(self) -> RpmRepository:
        seen: set[str] = set()
        for package in self.packages:
            if package.name in seen:
                raise ValueError(f"duplicate package: {package.name}")
            seen.add(package.name)
        return self

    def of(self, system: str) -> RpmRepository:
        """The same of a system, whose stack its packages follow."""
        packages = [one.model_copy(update={"system": system}) for one in self.packages]
        return self.model_copy(update={"system": system, "packages": packages})

    def with_those_of(self, other: RpmRepository) -> RpmRepository:
        """With the packages that it takes from the repository of the other system."""
        own = {one.name for one in self.packages}
        absent = sorted(set(self.without) - {one.name for one in other.packages})
        if absent:
            raise ValueError(f"without: {', '.join(absent)} is not in vendor/{other.system}/{other.repo}.yml")
        taken = [one for one in other.packages if one.name not in {*own, *self.without}]
        renamed = [one.model_dump_json().replace(f".{other.system}", f".{self.system}") for one in taken]
        packages = [*self.packages, *map(RpmPackage.model_validate_json, renamed)]
        return self.model_copy(update={"packages": packages}).of(self.system)


@cache
def stack_version(key: str, system: str) -> str:
    """What the stack release `current` wants on a system: of "cuda.nccl" its version; "" where it names none.

    LabError for a key that the stacks do not have.
    """
    path = project.file("stacks/current.yml")
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))["stack_data"]["sets"][system]
        component, part = key.split(".")
        return str(found[component][part])
    except (OSError, KeyError) as e:
        raise LabError(f"{path}: {system} has no {key}, of which a stand-in is to be made") from e


def _files_of(like: str) -> dict[str, PackagedFile]:
    repo, name = like.split("/")
    found = [p for one in load_fake_packages() if one.repo == repo for p in one.packages if p.name == name]
    if not found:
        raise LabError(f"toolkit/lab/vendor: like: {like} is in no vendor/{repo}.yml")
    return dict(found[-1].files)


def load_rpm_packages(system: str = SYSTEM) -> list[RpmRepository]:
    """All repositories of a system. LabError with file, line and entry for the first fault."""
    found = []
    for path in sorted(Path(str(resources.files("toolkit.lab") / "vendor" / system)).glob("*.yml")):
        try:
            one = load_yaml(path, RpmRepository).of(system)
            if one.takes:
                one = one.with_those_of(load_yaml(path.parents[1] / one.takes / path.name, RpmRepository))
        except ConfigError as e:
            raise LabError(str(e)) from e
        except ValueError as e:
            raise LabError(f"{path}: {e}") from e
        if one.repo != path.stem:
            raise LabError(f"{path}: repo: is '{one.repo}'; the file name says '{path.stem}'")
        found.append(one)
    return found


def fingerprint_of(repositories: list[RpmRepository]) -> str:
    """Changes whenever the data do, with what they take from stacks and from other packages."""
    parts = [one.model_dump_json() for one in repositories]
    for package in (p for one in repositories for p in one.packages):
        parts += package.every_version()
        parts += [f"{path} {file.model_dump_json()}" for path, file in package.every_file().items()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def stream_of(streams: Streams, version: str) -> str:
    """The module stream that a release of a driver is in."""
    branch = re.split(r"[.-]", version)[0]
    return next((name for name, other in streams.named.items() if other == branch), f"{branch}-open")
