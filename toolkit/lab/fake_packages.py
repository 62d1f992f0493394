"""Data of the packages that stand in for the vendors' in a lab: true names, versions and relations, no content.

One YAML file per repository in toolkit/lab/vendor/; toolkit.lab.debrepo makes signed apt repositories of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from toolkit.errors import LabError
from validation.model.load import ConfigError, load_yaml

#: Suites of Debian-like systems by their key in the roles' tables.
CODENAMES = {
    **{"debian12": "bookworm", "debian13": "trixie"},
    **{"ubuntu2204": "jammy", "ubuntu2404": "noble", "ubuntu2604": "resolute"},
}
#: Debian policy 5.6.1 and 5.6.12.
NAME = r"[a-z0-9][a-z0-9+.-]+"
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
Version = Annotated[str, StringConstraints(pattern=r"^(\d+:)?\d[A-Za-z0-9.+~-]*$")]
System = Literal["debian12", "debian13", "ubuntu2204", "ubuntu2404", "ubuntu2604"]
OneLine = Annotated[str, StringConstraints(pattern=r"^[^\n]*$")]
RELATIONS = ("depends", "pre_depends", "recommends", "conflicts", "breaks", "replaces", "provides")


class StrictModel(BaseModel):
    """Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PackagedFile(StrictModel):
    """A file of a package: its text, or where a symbolic link points."""

    content: str | None = None
    link: str | None = None
    mode: Annotated[str, StringConstraints(pattern=r"^0[0-7]{3}$")] = "0644"

    @model_validator(mode="after")
    def _one_of_both(self) -> PackagedFile:
        if (self.content is None) == (self.link is None):
            raise ValueError("give either content or link")
        return self


class Package(StrictModel):
    """One version of one package, or several that differ in nothing else, on those systems whose repository has it.

    Where `versions` are given, {version} in any text is that version, {upstream} the same without epoch and packaging
    suffix, and {branch} its first number.
    """

    os: list[System] = Field(min_length=1)
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.{}-]+$")]
    version: Version = ""
    versions: list[Version] = []
    depends: OneLine = ""
    pre_depends: OneLine = ""
    recommends: OneLine = ""
    conflicts: OneLine = ""
    breaks: OneLine = ""
    replaces: OneLine = ""
    provides: OneLine = ""
    files: dict[str, PackagedFile] = {}
    scripts: dict[Literal["preinst", "postinst", "prerm", "postrm", "triggers"], str] = {}

    @model_validator(mode="after")
    def _version_or_versions(self) -> Package:
        if bool(self.version) == bool(self.versions):
            raise ValueError("give either version or versions")
        for one in self.each():
            if not re.fullmatch(NAME, one.name):
                raise ValueError(f"no name of a package: {one.name}")
        return self

    def each(self) -> list[Package]:
        """One package for each of the versions."""
        return [self._of(version) for version in self.versions] or [self]

    def _of(self, version: str) -> Package:
        upstream = re.sub(r"^\d+:", "", version).split("-")[0]
        words = {"{version}": version, "{upstream}": upstream, "{branch}": upstream.split(".")[0]}

        def filled(text: str) -> str:
            for word, value in words.items():
                text = text.replace(word, value)
            return text

        return self.model_copy(update={"version": version, "versions": [], **self._texts(filled)})

    def _texts(self, filled: Callable[[str], str]) -> dict[str, object]:
        """Every text of the package, filled in."""
        return {
            **{key: filled(getattr(self, key)) for key in ("name", *RELATIONS)},
            "files": {
                filled(path): file.model_copy(update={"content": file.content and filled(file.content)})
                for path, file in self.files.items()
            },
            "scripts": {script: filled(text) for script, text in self.scripts.items()},
        }

    @field_validator("files")
    @classmethod
    def _absolute(cls, files: dict[str, PackagedFile]) -> dict[str, PackagedFile]:
        for path in files:
            if not re.fullmatch(r"/[^/]+(/[^/]+)*", path) or "/../" in f"{path}/":
                raise ValueError(f"{path}: give the full path of a file")
        return files


def without_alike(repository: object) -> object:
    """A repository's data with an entry for each package of `alike`, which differ in the name alone."""
    if not isinstance(repository, dict) or not isinstance(repository.get("packages"), list):
        return repository
    entries: list[object] = []
    for entry in repository["packages"]:
        entries.append(entry)
        if isinstance(entry, dict) and isinstance(entry.get("alike"), list):
            one = {key: value for key, value in entry.items() if key != "alike"}
            entries[-1:] = [one, *({**one, "name": name} for name in entry["alike"])]
    return {**repository, "packages": entries}


class FakeRepository(StrictModel):
    """One repository: where a vendor's would be, in the vendor's layout.

    With `of_system` it has what a system itself has under names of its own; its nodes have it from the beginning, and
    it is no vendor's.
    """

    repo: Name
    of_system: bool = False
    label: OneLine
    layout: Literal["flat", "suite"]
    source: str
    packages: list[Package]

    _alike = model_validator(mode="before")(without_alike)

    @model_validator(mode="after")
    def _each_once(self) -> FakeRepository:
        seen: set[tuple[str, str, str]] = set()
        for package in (one for entry in self.packages for one in entry.each()):
            for system in package.os:
                key = (system, package.name, package.version)
                if key in seen:
                    raise ValueError(f"duplicate package for {system}: {package.name} {package.version}")
                seen.add(key)
        return self

    def of(self, system: str) -> list[Package]:
        """The packages of one system, each of its versions by itself."""
        return [one for entry in self.packages if system in entry.os for one in entry.each()]


def data_files() -> list[Path]:
    """The packaged data files."""
    folder = Path(str(resources.files("toolkit.lab") / "vendor"))
    return sorted(folder.glob("*.yml"))


def load_fake_packages(files: list[Path] | None = None) -> list[FakeRepository]:
    """All repositories. LabError with file, line and entry for the first fault."""
    found = []
    for path in data_files() if files is None else files:
        try:
            fakes = load_yaml(path, FakeRepository)
        except ConfigError as e:
            raise LabError(str(e)) from e
        if fakes.repo != path.stem:
            raise LabError(f"{path}: repo: is '{fakes.repo}'; the file name says '{path.stem}'")
        found.append(fakes)
    return found


def fingerprint_of(fakes: list[FakeRepository]) -> str:
    """Changes whenever the data do."""
    return hashlib.sha256("\n".join(s.model_dump_json() for s in fakes).encode()).hexdigest()
