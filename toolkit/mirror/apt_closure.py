"""What apt itself would install on an empty system, in a folder of its own: nothing of this machine is changed.

With an empty status file of dpkg apt takes nothing for installed, and lists all that a node could lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.apt_index import Entry, Index, listed
from toolkit.mirror.asking import Pin
from toolkit.mirror.tools import ToolFault, run

#: What makes a system one that Ansible can log in to; of these what the distribution has.
BASE = ("apt", "ca-certificates", "openssh-server", "python3", "python3-apt", "sudo", "systemd-sysv", "udev")
DISTRIBUTION = "distribution"
HELPER = "/usr/lib/apt/apt-helper"
_SETTINGS = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
APT::Sandbox::User "root";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::GzipIndexes "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::Retries "3";
"""


@dataclass(frozen=True)
class Found:
    """A repository that apt has read: its address, label and origin, and the name under which it is mirrored."""

    url: str
    label: str
    origin: str


@dataclass
class AptRoot:
    """An empty system of apt's below `folder`."""

    folder: Path
    architecture: str
    index: Index = field(default_factory=Index)
    found: dict[str, Found] = field(default_factory=dict)

    def make(self, sources: Mapping[str, str], settings: str) -> None:
        """Write it. sources: by name, in one of apt's two forms. settings: more lines of apt.conf."""
        for place in ("etc/apt/preferences.d", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d",
                      "var/lib/dpkg", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):  # fmt: skip
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        (self.folder / "var/lib/dpkg/status").write_text("")
        for name, text in sources.items():
            suffix = "sources" if text.lstrip().startswith(("Types:", "#")) and "Types:" in text else "list"
            (self.folder / f"etc/apt/sources.list.d/{name}.{suffix}").write_text(text)
        text = _SETTINGS.format(root=self.folder, architecture=self.architecture) + settings
        (self.folder / "apt.conf").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """What makes apt take this folder for the system."""
        return {"APT_CONFIG": str(self.folder / "apt.conf"), "DPKG_ADMINDIR": str(self.folder / "var/lib/dpkg")}

    def update(self) -> int:
        """Fetch and read the indices; their bytes. ToolFault in apt's words, or about the clock."""
        run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], package="apt", env=self.environment)
        form = "$(CREATED_BY)\t$(FILENAME)\t$(REPO_URI)\t$(LABEL)\t$(ORIGIN)"
        total = 0
        for line in run(["apt-get", "indextargets", "--format", form], env=self.environment).splitlines():
            kind, file, url, label, origin = (line.split("\t") + [""] * 5)[:5]
            if kind != "Packages":
                continue
            total += Path(file).stat().st_size
            self.found.setdefault(url, Found(url, label, origin))
            self.index.read(url, self._lines(Path(file)))
        return total

    def _lines(self, file: Path) -> Iterable[str]:
        if file.suffix in (".lz4", ".xz", ".gz", ".zst", ".bz2"):
            return run([HELPER, "cat-file", str(file)], env=self.environment).splitlines()
        return file.read_text(encoding="utf-8", errors="replace").splitlines()

    def closure(self, wanted: Mapping[str, str], pins: Sequence[Pin]) -> list[Entry]:
        """All files that come with these packages. ToolFault with what apt prints where they do not fit together."""
        preferences = [f"Package: {p.packages}\nPin: {p.pin}\nPin-Priority: {p.priority}\n" for p in pins]
        (self.folder / "etc/apt/preferences.d/roles").write_text("\n".join(preferences))
        words = [f"{name}={version}" if version else name for name, version in wanted.items()]
        said = run(["apt-get", "--print-uris", "-y", "--allow-downgrades", "install", *words], env=self.environment)
        urls = listed(said)
        unknown = [url for url in urls if url not in self.index.by_url]
        if unknown:
            raise ToolFault(f"apt wants {unknown[0]}, which no index lists with a SHA-256")
        return [self.index.by_url[url] for url in urls]

    def base(self) -> dict[str, str]:
        """What a bare node has already, and a training image begins with."""
        known = [name for name in BASE if self.index.has(name, "")]
        return dict.fromkeys([*sorted(self.index.essential), *known], "")


def machine_architecture() -> str:
    """Debian's name of this machine's architecture; that of most servers where dpkg is missing."""
    try:
        return run(["dpkg", "--print-architecture"]).strip() or "amd64"
    except UsageFault:
        return "amd64"
