"""The machine's own package sources, as a lab node needs them: the distribution's entries and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from toolkit.lab.sh import LabError, run


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


def key_files(sources: str) -> list[Path]:
    """Keyring files that the entries name, to be copied into the node."""
    named = re.findall(r"(?:Signed-By:\s*|signed-by=)(/[^\s\]]+)", sources)
    return sorted({Path(p) for p in named if Path(p).is_file()})


def apt_proxies() -> str:
    """The machine's own apt proxy settings as apt.conf lines ('' when it has none)."""
    dump = run(["apt-config", "dump"]).stdout.splitlines()
    return "".join(f"{x}\n" for x in dump if re.match(r"Acquire::(https?|ftp)::(Proxy|CAInfo)", x))
