"""The configuration of the site with its whole navigation: mkdocs.yml, its entries with * filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ALL = re.compile(r"^(?P<indent> *)- (?P<title>[^:]+): (?P<folder>[\w/-]+)/\*$", re.MULTILINE)
_PAGE = re.compile(r"^ *- (?:[^:\n]+: )?([\w/.-]+\.md)$", re.MULTILINE)
#: Pages that another page shows, or that readers come to by a link alone.
WITHOUT = ("sample/",)


def config(text: str, pages: Path) -> tuple[str, list[str]]:
    """The configuration, and what is wrong with its navigation: a page that is not there, one that nothing lists."""

    def entries(found: re.Match[str]) -> str:
        inner = found["indent"] + "    "
        listed = "\n".join(f"{inner}- {name}" for name in _folder(pages, found["folder"]))
        return f"{found['indent']}- {found['title']}:\n{listed}"

    whole = _ALL.sub(entries, text)
    listed = _PAGE.findall(whole.partition("\nnav:\n")[2])
    there = {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    return whole, [
        *(f"mkdocs.yml: nav: {name} is no page; correct the entry" for name in listed if name not in there),
        *(f"mkdocs.yml: nav: {name} has no entry; add one" for name in sorted(there - {*listed}) if _needed(name)),
    ]


def _needed(name: str) -> bool:
    return not name.startswith(WITHOUT)


def _folder(pages: Path, folder: str) -> Iterator[str]:
    """The pages of a folder, its index first."""
    names = sorted(str(path.relative_to(pages)) for path in (pages / folder).glob("*.md"))
    yield from sorted(names, key=lambda name: not name.endswith("/index.md"))
