"""Entries of package repositories as others write them: apt's two forms, and yum's. Which of them a role replaces.

An entry is known by its address, however its file is called: apt refuses one repository with two keys, and a second
entry of a vendor beside ours would bring other versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.repos import MOVED, PREFIX, Repo, repos_moved

#: What role repos wrote, with the originals.
LEDGER = "/var/lib/elastic-ai/ledger/repos.files.json"
#: Words that switch off a stanza of deb822 (StringToBool in apt-pkg/contrib/strutl.cc), and a section of yum's.
OFF = frozenset({"no", "false", "without", "off", "disable", "0"})
#: `deb [options] URI suite components`; a # begins a comment.
ONE_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(?P<uri>\"[^\"]*\"|[^\s#]+)(?:\s+(?P<suite>[^\s#]+))?")
LIST, STANZAS, YUM = ".list", ".sources", ".repo"


def address(uri: str) -> str:
    """What two spellings of one address have in common: no scheme, user or own port, no doubled or last slash."""
    plain = re.sub(r"^(?:[a-z0-9.-]+\+)*[a-z0-9.-]+:(?=/)/*", "", uri.strip().strip('"'), flags=re.IGNORECASE)
    host, _, path = plain.partition("/")
    host = re.sub(r":(80|443)$", "", host.rpartition("@")[2]).lower()
    return "/".join([host, *(part for part in path.split("/") if part and part != ".")])


def paragraphs(lines: Sequence[str], suffix: str) -> Iterator[range]:
    """Lines that belong together: one of a .list, a stanza of a .sources, a section of a .repo."""
    start = 0
    for number, line in enumerate([*lines, ""]):
        ends = {
            LIST: True,
            STANZAS: not line.strip(),
            YUM: number > start and (line.startswith("[") or number == len(lines)),
        }[suffix]
        if ends:
            last = number + 1 if suffix == LIST else number
            if range(start, min(last, len(lines))):
                yield range(start, min(last, len(lines)))
            start = number if suffix == YUM else number + 1


def fields(lines: Sequence[str], separator: str) -> dict[str, str]:
    """Fields of a stanza or section, their names in small letters; lines that begin with a blank go on."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.startswith(("#", ";")):
            continue
        if line[:1].isspace():
            if name and line.strip():
                found[name] += f"\n{line.strip()}"
        elif separator in line:
            name, _, value = line.partition(separator)
            name = name.strip().lower()
            found[name] = value.strip()
    return found


def uris(lines: Sequence[str], suffix: str) -> list[str]:
    """Addresses that an entry has; none of a comment, or of an entry that is switched off."""
    if suffix == LIST:
        found = ONE_LINE.match(lines[0])
        return [found["uri"]] if found else []
    said = fields(lines, ":" if suffix == STANZAS else "=")
    if said.get("enabled", "yes").lower() in OFF:
        return []
    if suffix == STANZAS:
        return said.get("uris", said.get("uri", "")).split()
    return [
        one for key in ("baseurl", "mirrorlist", "metalink") for one in re.split(r"[\s,]+", said.get(key, "")) if one
    ]


def suites(lines: Sequence[str], suffix: str) -> set[str]:
    """Suites that an entry is of; a flat repository is `/`, however it is written."""
    if suffix == LIST:
        found = ONE_LINE.match(lines[0])
        every = [found["suite"] or ""] if found else []
    else:
        every = fields(lines, ":").get("suites", "").split() if suffix == STANZAS else []
    return {"/" if one in ("./", "/") else one.rstrip("/") for one in every}


def without(lines: Sequence[str], gone: Sequence[str], suffix: str) -> list[str]:
    """An entry without these of its addresses: a comment where none is left."""
    kept = [uri for uri in uris(lines, suffix) if uri not in gone]
    if not kept or suffix != STANZAS:
        return [line if line.startswith("#") or not line.strip() else f"# {line}" for line in lines]
    left: list[str] = []
    inside = False
    for line in lines:
        if re.match(r"uris?\s*:", line, re.IGNORECASE):
            left.append(f"URIs: {' '.join(kept)}")
            inside = True
        elif not (inside and line[:1].isspace()):
            inside = inside and line.startswith("#")
            left.append(line)
    return left


def edited(text: str, suffix: str, ours: Callable[[str, set[str]], bool]) -> str | None:
    """A file without the entries whose address and suites `ours` says yes to; None where it has none."""
    lines = text.splitlines()
    left, found, others = list(lines), False, False
    for place in reversed(list(paragraphs(lines, suffix))):
        part = [lines[number] for number in place]
        every = uris(part, suffix)
        gone = [uri for uri in every if ours(uri, suites(part, suffix))]
        others = others or len(gone) < len(every)
        if gone:
            found = True
            left[place.start : place.stop] = without(part, gone, suffix)
    if not found:
        return None
    return MOVED + "\n".join(left) + "\n" if others else MOVED


def repos_superseded(
    contents: Mapping[str, str],
    legacy: Mapping[str, Sequence[str]],
    addresses: Mapping[str, Sequence[str]],
    plan: Sequence[Repo],
) -> list[dict[str, Any]]:
    """Files for managed_files in place of what others wrote for the repositories of the plan.

    contents: of the node's files of entries. legacy: names that the vendors' packages and guides give these files,
    addresses: where the vendors have their repositories; both by repository. Of an empty plan what an earlier run
    replaced, by the ledger among the contents, comes back.
    """
    if not plan:
        ledgered = json.loads(contents.get(LEDGER) or "{}").get("files", {})
        back = (path for path, text in sorted(contents.items()) if text.startswith(MOVED) and path in ledgered)
        return [{"path": path, "state": "absent"} for path in back]
    moved = repos_moved(contents, legacy, plan)
    own = {(address(repo["url"]), "/" if repo["suite"] == "./" else repo["suite"]) for repo in plan}
    vendors = tuple(f"{address(one)}/" for repo in plan for one in addresses.get(repo["name"], []))

    def ours(uri: str, of: set[str]) -> bool:
        """One address may have many suites: a site's own beside the distribution's, on its mirror."""
        return f"{address(uri)}/".startswith(vendors) or any((address(uri), suite) in own for suite in of)

    files, by_name = list(moved), {entry["path"] for entry in moved}
    for path, text in sorted(contents.items()):
        name = path.rpartition("/")[2]
        suffix = re.search(r"\.(list|sources|repo)$", name)
        if name.startswith(PREFIX) or not suffix or path in by_name:
            continue
        if (now := edited(text, suffix[0], ours)) is not None:
            files.append({"path": path, "content": now})
    return files
