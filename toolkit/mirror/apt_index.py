"""Indices of apt's repositories, read as they are: which packages there are, where, and with which hash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

#: Fields of a stanza that matter here.
_FIELDS = ("Package", "Version", "Architecture", "Filename", "SHA256", "Size", "Essential", "Provides")
_LINE = re.compile(rf"({'|'.join(_FIELDS)}): *(.*)")
_URI = re.compile(r"'([^']+)' (\S+) (\d+)")


@dataclass(frozen=True)
class Entry:
    """A package file of an index. repository: the address of its repository."""

    name: str
    version: str
    architecture: str
    url: str
    sha256: str
    size: int


@dataclass
class Index:
    """All that the indices list."""

    by_url: dict[str, Entry] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    provided: set[str] = field(default_factory=set)
    essential: set[str] = field(default_factory=set)

    def read(self, repository: str, lines: Iterable[str]) -> None:
        """Add a repository's index."""
        for stanza in stanzas(lines):
            name, version = stanza.get("Package", ""), stanza.get("Version", "")
            if not name or "SHA256" not in stanza or not stanza.get("Size", "").isdigit():
                continue
            url = plain(repository + stanza["Filename"])
            entry = Entry(name, version, stanza["Architecture"], url, stanza["SHA256"], int(stanza["Size"]))
            self.by_url[url] = entry
            if version not in self.versions.setdefault(name, []):
                self.versions[name].append(version)
            if stanza.get("Essential") == "yes":
                self.essential.add(name)
            self.provided |= {one.split()[0] for one in stanza.get("Provides", "").split(",") if one.strip()}

    def has(self, name: str, version: str) -> bool:
        """Whether a package can be had."""
        there = self.versions.get(name, [])
        return version in there if version else bool(there) or name in self.provided


def stanzas(lines: Iterable[str]) -> Iterator[Mapping[str, str]]:
    """The stanzas of an index, of each the fields that matter."""
    found: dict[str, str] = {}
    for line in lines:
        if not line.strip():
            if found:
                yield found
            found = {}
        elif (match := _LINE.match(line)) is not None:
            found[match[1]] = match[2].rstrip()
    if found:
        yield found


def plain(url: str) -> str:
    """An address without quoting, `./` and an empty host of a file, as index and apt both mean it."""
    return re.sub(r"^(file|copy):///", r"\1:/", unquote(url).replace("/./", "/"))


def listed(said: str) -> list[str]:
    """Addresses of what `apt-get --print-uris install` would fetch."""
    return [plain(match[1]) for line in said.splitlines() if (match := _URI.match(line)) is not None]
