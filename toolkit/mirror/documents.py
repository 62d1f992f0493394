"""The plan of a mirror, as a document: what it is to hold, from where, with which hash."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

PLAN = "plan.json"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Package(_Document):
    """A package file. `file`: its name in the mirror, below the folder of its repository."""

    name: str
    version: str
    architecture: str
    url: str
    file: str = Field(pattern="^(?:pool/)?[^/.][^/]*$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0)


class Repository(_Document):
    """A repository of the mirror, `packages/NAME/SYSTEM/`. suite: `/` for a flat one of apt, "" for dnf. label, origin:
    what apt's preferences may name. fingerprints: of those who sign it at its source, `key` their keys. modules:
    streams of dnf, as YAML."""

    name: str
    system: str
    suite: str = ""
    components: str = ""
    architecture: str = ""
    label: str = ""
    origin: str = ""
    fingerprints: tuple[str, ...] = ()
    key: str = ""
    modules: str = ""
    packages: tuple[Package, ...] = ()

    @property
    def folder(self) -> str:
        """Where it is in the mirror."""
        return f"packages/{self.name}/{self.system}"

    @property
    def size(self) -> int:
        """Bytes of all packages."""
        return sum(one.size for one in self.packages)


class Missing(_Document):
    """A package that no repository has. versions: those that there are of this name."""

    system: str
    role: str
    name: str
    version: str
    versions: tuple[str, ...] = ()


class Plan(_Document):
    """All of it. rate_bytes_s: what the indices came with; None where they took no time."""

    site: str
    made: str
    release: str
    repositories: tuple[Repository, ...]
    missing: tuple[Missing, ...] = ()
    images: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    upstream: dict[str, object] = {}
    rate_bytes_s: float | None = None

    @property
    def systems(self) -> tuple[str, ...]:
        """Systems that it has packages for."""
        return tuple(dict.fromkeys(one.system for one in self.repositories))

    @property
    def size(self) -> int:
        """Bytes of all packages."""
        return sum(one.size for one in self.repositories)


def size_words(size: float) -> str:
    """`367 MB`, `4.1 GB`."""
    for unit, least in (("GB", 10**9), ("MB", 10**6)):
        if size >= least:
            return f"{size / least:.1f} {unit}" if size < 10 * least else f"{size / least:.0f} {unit}"
    return f"{size / 1000:.0f} kB"
