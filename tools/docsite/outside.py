"""What a page of the built site loads from outside: scripts, styles, fonts, pictures, frames. A link loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

#: element -> attributes whose address a browser loads by itself
LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "audio": ("src",),
    "video": ("src", "poster"),
    "track": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
}
#: `rel` of a link that loads nothing
NAMED_ONLY = {"canonical", "alternate", "author", "license", "help", "next", "prev", "bookmark"}
_CSS = re.compile(r"(?:@import\s+(?:url\()?|url\()\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)
_ADDRESS = re.compile(r"^\s*((?:https?:)?//\S+)", re.IGNORECASE)
_ADDRESSES = re.compile(r"(?:^|\s)((?:https?:)?//[^\s,]+)", re.IGNORECASE)


def in_css(text: str) -> Iterator[str]:
    """Addresses that a style sheet loads from outside."""
    return (found[1] for found in _CSS.finditer(text))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.found += in_css(values.get("style", ""))
        names = LOADS.get(tag, ())
        if tag == "link" and not set(values.get("rel", "").lower().split()) <= NAMED_ONLY:
            names = ("href", "imagesrcset")
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.found += re.findall(r"https?://[^\s\"']+", values.get("content", ""))
        for name in names:
            form = _ADDRESSES if name.endswith("srcset") else _ADDRESS
            self.found += form.findall(values.get(name, ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("a mermaid diagram, whose program comes from a public address")

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found += in_css(data)


def in_html(text: str) -> list[str]:
    """What a page loads from outside when it is opened."""
    page = _Page()
    page.feed(text)
    page.close()
    return page.found


def faults(site: Path) -> list[str]:
    """A sentence for each load from outside in the pages and style sheets of a site."""
    loads = [(path, found) for path in sorted(site.rglob("*.html")) for found in in_html(_text(path))]
    loads += [(path, found) for path in sorted(site.rglob("*.css")) for found in in_css(_text(path))]
    return [f"{path.relative_to(site)}: loads {found} from outside; bundle it or leave it out" for path, found in loads]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
