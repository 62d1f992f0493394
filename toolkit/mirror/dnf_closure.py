"""What dnf itself would install into an empty root; nothing of this machine is changed."""

from __future__ import annotations

import gzip
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote
from xml.etree import ElementTree

from toolkit.errors import UsageFault
from toolkit.mirror import sources
from toolkit.mirror.apt_closure import DISTRIBUTION
from toolkit.mirror.asking import SystemWishes
from toolkit.mirror.documents import Missing, Package, Repository
from toolkit.mirror.parts import Part
from toolkit.mirror.tools import ENGLISH, ToolFault, run

BASE = ("basesystem", "dnf", "openssh-server", "python3", "sudo", "systemd")
_COMMON = "{http://linux.duke.edu/metadata/common}"
_CONFIGURATION = """\
[main]
reposdir={root}/etc/yum.repos.d
cachedir=/cache
persistdir=/persist
logdir=/log
varsdir={root}/vars
pluginconfpath={root}/plugins
module_platform_id=platform:{system}
install_weak_deps=False
best=1
"""
_QUERY = "%{name}\t%{epoch}:%{version}-%{release}"


class DnfRoot:
    """An empty system of dnf's below `folder`."""

    def __init__(self, folder: Path, system: str) -> None:
        """`system`: el9."""
        self.folder, self.system = folder, system

    def make(self, texts: Mapping[str, str]) -> None:
        """Write it. texts: .repo files by name."""
        for place in ("etc/yum.repos.d", "vars", "plugins", "empty/var/lib/rpm"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (self.folder / f"etc/yum.repos.d/{name}.repo").write_text(text, encoding="utf-8")
        (self.folder / "dnf.conf").write_text(_CONFIGURATION.format(root=self.folder, system=self.system))

    @property
    def cache(self) -> Path:
        """Where dnf keeps the indices: below the empty root, as all folders of its own."""
        return self.folder / "empty/cache"

    @property
    def words(self) -> list[str]:
        """dnf, as all its commands here begin. Streams are a role's matter: all of them count."""
        where = ["--config", str(self.folder / "dnf.conf"), "--installroot", str(self.folder / "empty")]
        return ["dnf", *where, f"--releasever={self.system[2:]}", "--setopt=*.module_hotfixes=1"]

    def dnf(self, *words: str) -> str:
        """What dnf prints. ToolFault in its words."""
        return run([*self.words, *words], package="dnf", env={"HOME": str(self.folder)})

    def update(self) -> int:
        """Fetch and read the indices; their bytes."""
        self.dnf("makecache")
        return sum(file.stat().st_size for file in self.cache.rglob("*") if file.is_file())

    def versions(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Versions by name, each with its epoch; [""] for a name that only a package of another name provides."""
        found: dict[str, list[str]] = {name: [] for name in names}
        for line in self.dnf("-q", "repoquery", "--qf", f"{_QUERY}\n", *names).replace("\\t", "\t").splitlines():
            name, _, version = line.partition("\t")
            if name in found and version not in found[name]:
                found[name].append(version)
        for name in [name for name, versions in found.items() if not versions]:
            if self.dnf("-q", "repoquery", "--whatprovides", name).strip():
                found[name] = [""]
        return found

    def closure(self, specs: Sequence[str]) -> list[str]:
        """Addresses of all packages that come with these. ToolFault where they do not fit together."""
        said = self.dnf("download", "--resolve", "--alldeps", "--url", *specs)
        return [line.strip() for line in said.splitlines() if line.strip().endswith(".rpm")]

    def listed(self) -> dict[str, list[tuple[Package, str]]]:
        """By file name: every package of the indices, and the repository that lists it."""
        found: dict[str, list[tuple[Package, str]]] = {}
        for primary in sorted(self.cache.glob("*/repodata/*primary.xml*")):
            repository = primary.parents[1].name.rsplit("-", 1)[0]
            for package in _packages(primary):
                found.setdefault(package.url.rsplit("/", 1)[-1], []).append((package, repository))
        return found

    def modules(self, repository: str) -> str:
        """The repository's streams, "" where it has none."""
        for file in sorted(self.cache.glob(f"{repository}-*/repodata/*modules.yaml*")):
            with _opened(file) as text:
                return text.read().decode("utf-8", "replace")
        return ""


def _opened(file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return gzip.open(file)  # type: ignore[return-value]
    programs = {".xz": "xzcat", ".zst": "zstdcat", ".bz2": "bzcat"}
    if file.suffix not in programs:
        return file.open("rb")
    process = subprocess.Popen([programs[file.suffix], str(file)], stdout=subprocess.PIPE, env=ENGLISH)
    assert process.stdout is not None
    return process.stdout


def _packages(primary: Path) -> list[Package]:
    """Of an index; `url` is the place in its repository."""
    found = []
    with _opened(primary) as text:
        for _, node in ElementTree.iterparse(text):  # noqa: S314 - an index that dnf has read
            if node.tag != f"{_COMMON}package":
                continue
            version, size = node.find(f"{_COMMON}version"), node.find(f"{_COMMON}size")
            place, digest = node.find(f"{_COMMON}location"), node.find(f"{_COMMON}checksum")
            if version is None or size is None or place is None or digest is None or digest.get("type") != "sha256":
                continue
            where = place.get("href", "")
            found.append(
                Package(
                    name=node.findtext(f"{_COMMON}name", ""), architecture=node.findtext(f"{_COMMON}arch", ""),
                    version=f"{version.get('epoch')}:{version.get('ver')}-{version.get('rel')}", url=where,
                    file=f"pool/{where.rsplit('/', 1)[-1]}", sha256=digest.text or "", size=int(size.get("package", 0)),
                )
            )  # fmt: skip
            node.clear()
    return found


def system_part(
    wishes: SystemWishes, given: Mapping[str, Path], at: Mapping[str, str], upstream: Mapping[str, Any], folder: Path
) -> Part:
    """One system's share of a plan."""
    moved = sources.reached(wishes, at)
    keys = {name: sources.key_of(one, upstream, folder) for name, one in moved.items()}
    root = DnfRoot(folder / "root", wishes.system)
    texts = {name: sources.dnf_section(one, keys[name]) for name, one in moved.items()}
    root.make({DISTRIBUTION: sources.distribution(wishes.system, given), **texts})
    began = time.monotonic()
    read = root.update()
    seconds = time.monotonic() - began
    missing, urls = [], set()
    for node, (packages, _) in wishes.sets.items():
        there = root.versions([*packages, *BASE])
        had = [name for name in BASE if there[name]]
        for name, version in packages.items():
            full = version if not version or ":" in version else f"0:{version}"
            if full in there[name] or (not version and there[name]):
                had.append(f"{name}-{version}" if version else name)
                continue
            versions = tuple(there[name])
            role = wishes.roles[name]
            missing.append(Missing(system=wishes.system, role=role, name=name, version=version, versions=versions))
        try:
            urls |= set(root.closure(had) if had else [])
        except ToolFault as fault:
            raise UsageFault(f"{wishes.system}: the packages of {node} do not fit together: {fault}") from None
    listed = root.listed()
    by_name: dict[str, list[Package]] = {DISTRIBUTION: [], **{name: [] for name in moved}}
    for url in sorted(urls):
        package, repository = _of(url, listed)
        by_name[repository if repository in moved else DISTRIBUTION].append(package.model_copy(update={"url": url}))
    made = [_repository(name, wishes, root, packages, moved, keys) for name, packages in by_name.items()]
    return Part(made, list(dict.fromkeys(missing)), read, seconds)


def _of(url: str, listed: Mapping[str, list[tuple[Package, str]]]) -> tuple[Package, str]:
    """Which package of the indices an address is. Two repositories may have the same file."""
    for package, repository in listed.get(unquote(url).rsplit("/", 1)[-1], []):
        if unquote(url).endswith(f"/{package.url}"):
            return package, repository
    raise ToolFault(f"dnf wants {url}, which no index lists with a SHA-256")


def _repository(
    name: str, wishes: SystemWishes, root: DnfRoot, packages: list[Package], moved: Mapping[str, Any],
    keys: Mapping[str, Path],
) -> Repository:  # fmt: skip
    source = moved.get(name)
    return Repository(
        name=name, system=wishes.system, packages=tuple(packages), modules=root.modules(name) if source else "",
        fingerprints=source.fingerprints if source else (), key=keys[name].read_text("ascii") if source else "",
    )  # fmt: skip
