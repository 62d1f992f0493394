"""The machine's own package sources, as a lab node needs them: the distribution's entries and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.sh import run
from validation.base.temporary import room

APT_HELPER = "/usr/lib/apt/apt-helper"
#: What the vendors' user space needs beside main: Debian keeps NVIDIA's in contrib and non-free.
DEBIAN_COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
INDICES = "main|contrib|non-free|non-free-firmware"


@dataclass(frozen=True)
class Release:
    """An operating system release that nodes can run: ID and VERSION_ID of its os-release, its apt suite.

    `over` is the key of the release that truly runs where nodes only show this one's identity and manners.
    """

    id: str
    version: str
    codename: str
    over: str = ""

    @property
    def title(self) -> str:
        """As an inventory's `stack.os` wants it: "debian 12"."""
        return f"{self.id} {self.version}"

    @property
    def base(self) -> Release:
        """The release whose packages the nodes hold."""
        return RELEASES[self.over] if self.over else self


#: What `--os` can choose beside the machine's own release. What a stand-in shows: toolkit/lab/systems/.
RELEASES = {
    "debian12": Release("debian", "12", "bookworm"),
    "debian13": Release("debian", "13", "trixie"),
    "ubuntu2204": Release("ubuntu", "22.04", "jammy", over="debian12"),
    "ubuntu2404": Release("ubuntu", "24.04", "noble", over="debian12"),
    "ubuntu2604": Release("ubuntu", "26.04", "resolute", over="debian13"),
    "el9": Release("rocky", "9.6", "", over="debian12"),
    "el10": Release("rocky", "10.1", "", over="debian13"),
}


def os_key(title: str) -> str:
    """The key of per-OS tables: "debian 12" -> "debian12", "ubuntu 24.04" -> "ubuntu2404", "rocky 9.6" -> "el9"."""
    if title.startswith(("rocky ", "rhel ", "almalinux ")):
        return f"el{title.split()[1].partition('.')[0]}"
    return title.replace(" ", "").replace(".", "")


def machine_release(root: Path = Path("/")) -> Release:
    """The machine's own release."""
    found = os_release(root)
    return Release(found.get("ID", ""), found.get("VERSION_ID", ""), found.get("VERSION_CODENAME", ""))


def release_for(os_name: str | None) -> Release:
    """The release called `os_name`; the machine's own for None. LabError naming those that exist."""
    own = machine_release()
    if os_name is None or os_name == os_key(own.title):
        return own
    if os_name not in RELEASES:
        raise LabError(f"--os {os_name}: there are {', '.join(RELEASES)}")
    return RELEASES[os_name]


def over_of(release: Release) -> str:
    """What truly runs on nodes that stand in for the release, "debian 12"; "" where they run that release."""
    return release.base.title if release.over else ""


def os_release(root: Path = Path("/")) -> dict[str, str]:
    """The keys of /etc/os-release under `root`."""
    pairs = {}
    for line in (root / "etc/os-release").read_text().splitlines():
        key, sep, value = line.partition("=")
        if sep:
            pairs[key] = value.strip().strip('"')
    return pairs


def _serves(suites: list[str], codename: str) -> bool:
    wanted = re.compile(re.escape(codename) + r"(-(updates|security|backports))?")
    return bool(suites) and all(wanted.fullmatch(s) for s in suites)


def _one_line_entry(line: str) -> str | None:
    """The suite of a one-line `deb` entry; None for anything else."""
    words = re.sub(r"\[[^]]*\]", "", line).split()
    return words[2] if len(words) >= 3 and words[0] == "deb" else None


def distribution_sources(codename: str, etc_apt: Path = Path("/etc/apt")) -> str:
    """The machine's apt entries that serve `codename`, third-party entries left out.

    Returns deb822 stanzas when the machine has any, else one-line entries (a sources file holds one form only).
    Raises LabError when the machine has neither.
    """
    stanzas, lines = [], []
    files = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]
    for path in (f for f in files if f.is_file()):
        text = path.read_text()
        if path.suffix == ".sources":
            for stanza in re.split(r"\n\s*\n", "\n".join(x for x in text.splitlines() if not x.startswith("#"))):
                suites = re.search(r"^Suites:(.*)$", stanza, re.MULTILINE)
                enabled = not re.search(r"^Enabled:\s*no\b", stanza, re.MULTILINE | re.IGNORECASE)
                binary = re.search(r"^Types:.*\bdeb\b", stanza, re.MULTILINE)
                if suites and enabled and binary and _serves(suites.group(1).split(), codename):
                    stanzas.append(re.sub(r"^Types:.*$", "Types: deb", stanza.strip(), flags=re.MULTILINE))
        elif path.suffix == ".list":
            for line in text.splitlines():
                suite = _one_line_entry(line)
                if suite is not None and _serves([suite], codename):
                    lines.append(line.strip())
    if stanzas:
        return "\n\n".join(stanzas) + "\n"
    if lines:
        return "\n".join(lines) + "\n"
    raise LabError(f"no apt source of this machine serves '{codename}'; look at /etc/apt/sources.list(.d)")


def sources_for(release: Release, own: Release | None = None, etc_apt: Path = Path("/etc/apt")) -> str:
    """The machine's sources for `release`: those it has, else those of its own Debian release with the suites replaced.

    Debian entries ask for all of DEBIAN_COMPONENTS. Raises LabError on a machine without sources of that distribution.
    """
    own = own or machine_release()
    try:
        text = distribution_sources(release.codename, etc_apt)
    except LabError as e:
        if own.id != release.id:
            raise LabError(
                f"--os {os_key(release.title)}: this machine runs {own.title} and has no apt source of "
                f"{release.id} '{release.codename}'; add one below {etc_apt}, or leave --os out"
            ) from e
        text = _with_suite(distribution_sources(own.codename, etc_apt), own.codename, release.codename)
    return _with_components(text, " ".join(DEBIAN_COMPONENTS)) if release.id == "debian" else text


def _with_suite(sources: str, old: str, new: str) -> str:
    """The entries with suite `old` (and old-updates, …) replaced by `new`; addresses stay as they are."""
    if _is_deb822(sources):
        return re.sub(r"^Suites:.*$", lambda m: m[0].replace(old, new), sources, flags=re.MULTILINE)
    return re.sub(rf"(\s){re.escape(old)}(?=[-\s])", rf"\g<1>{new}", sources)


def _with_components(sources: str, components: str) -> str:
    if _is_deb822(sources):
        return re.sub(r"^Components:.*$", f"Components: {components}", sources, flags=re.MULTILINE)
    return re.sub(rf"( (?:{INDICES}))+ *$", f" {components}", sources, flags=re.MULTILINE)


def _is_deb822(sources: str) -> bool:
    return sources.startswith(("Types:", "URIs:", "Suites:", "Enabled:"))


def served(sources: str, components_of: Callable[[str, str], set[str]] | None = None) -> str:
    """The entries with only those components that every mirror in them serves; which a suite at an address has is asked
    through the machine's own apt.

    Raises LabError when a mirror does not serve a suite.
    """
    wanted = list(DEBIAN_COMPONENTS)
    for uri, suite in _suites(sources):
        there = (components_of or _release_components)(uri, suite)
        wanted = [c for c in wanted if c in there]
    return _with_components(sources, " ".join(wanted)) if wanted else sources


def _suites(sources: str) -> list[tuple[str, str]]:
    found = []
    if _is_deb822(sources):
        for stanza in sources.strip().split("\n\n"):
            values = dict(re.findall(r"^(URIs|Suites):\s*(.*)$", stanza, re.MULTILINE))
            found += [(u, s) for u in values.get("URIs", "").split() for s in values.get("Suites", "").split()]
        return found
    for line in sources.splitlines():
        words = re.sub(r"\[[^]]*\]", "", line).split()
        found.append((words[1], words[2]))
    return found


def _release_components(uri: str, suite: str) -> set[str]:
    """The components that the suite's InRelease file names, without the prefix that security suites have."""
    address = f"{uri.rstrip('/')}/dists/{suite}/InRelease"
    with room("eai-release") as folder:
        target = folder / "InRelease"
        done = run([APT_HELPER, "-oAPT::Sandbox::User=root", "download-file", address, str(target)], check=False)
        if done.returncode != 0 or not target.is_file():
            said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise LabError(f"the machine's mirror does not serve {suite}: {address}: {said}")
        listed = re.search(r"^Components:(.*)$", target.read_text(errors="replace"), re.MULTILINE)
    return {c.rsplit("/", 1)[-1] for c in listed.group(1).split()} if listed else set()


def key_files(sources: str) -> list[Path]:
    """Keyring files that the entries name, to be copied into the node."""
    named = re.findall(r"(?:Signed-By:\s*|signed-by=)(/[^\s\]]+)", sources)
    return sorted({Path(p) for p in named if Path(p).is_file()})


def apt_proxies() -> str:
    """The machine's own apt proxy settings as apt.conf lines ('' when it has none)."""
    dump = run(["apt-config", "dump"]).stdout.splitlines()
    return "".join(f"{x}\n" for x in dump if re.match(r"Acquire::(https?|ftp)::(Proxy|CAInfo)", x))
