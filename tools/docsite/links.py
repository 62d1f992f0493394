"""Links of Markdown pages: where they stand, which headings a page has, and what is wrong with a link."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
#: Code in a line, or a link or image: text (one level of brackets inside it) and target.
_LINK = re.compile(
    r"(?P<code>(`+)(?!`).+?(?<!`)\2(?!`))"
    r"|(?P<image>!?)\[(?P<text>(?:[^\[\]\\]|\\.|!?\[[^\]]*\](?:\([^()]*\))?)*)\]"
    r"\((?P<target>[^()\s]+)(?P<title> \"[^\"]*\")?\)",
    re.DOTALL,
)
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
_HOST = re.compile(r"^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}$")
_MENTION = re.compile(r"(?<![\w/.`-])(?<!\]\()docs/[\w/-]+\.md\b")
_ID = re.compile(r"\{ ?#([\w.-]+) ?\}\s*$")


@dataclass(frozen=True)
class Link:
    """A link or image of a page: its line, words, target, and whether it is an image."""

    line: int
    text: str
    target: str
    image: bool


def _prose(text: str) -> Iterator[tuple[bool, int, str]]:
    """Parts of a page, in their order: whether it is prose (no code block), the line of its start, the text."""
    part: list[str] = []
    prose, start, fence, blank = True, 1, "", True
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        mark = _FENCE.match(line)
        if fence:
            is_prose, ends = False, bool(mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]))
            fence = "" if ends else fence
        elif mark:
            is_prose, fence = False, mark[1]
        else:
            indented = line.startswith("    ") and line.strip() != ""
            is_prose = not (indented and (blank or not prose)) and not (line.strip() == "" and not prose)
        blank = line.strip() == ""
        if is_prose != prose and part:
            yield prose, start, "".join(part)
            part, start = [], number
        prose = is_prose
        part.append(line)
    if part:
        yield prose, start, "".join(part)


def links(text: str) -> Iterator[Link]:
    """The links of a page, those inside the words of another included."""
    for prose, start, part in _prose(text):
        if prose:
            yield from _links(part, start)


def _links(part: str, start: int) -> Iterator[Link]:
    for found in _LINK.finditer(part):
        if found["code"]:
            continue
        line = start + part.count("\n", 0, found.start())
        yield Link(line, found["text"], found["target"], bool(found["image"]))
        yield from _links(found["text"], line)


def rewritten(text: str, change: Callable[[Link], str | None]) -> str:
    """The page with what `change` gives in place of each link; None leaves it."""
    return "".join(_changed(part, start, change) if prose else part for prose, start, part in _prose(text))


def _changed(part: str, start: int, change: Callable[[Link], str | None]) -> str:
    def one(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        line = start + part.count("\n", 0, found.start())
        words = _changed(found["text"], line, change)
        new = change(Link(line, words, found["target"], bool(found["image"])))
        if new is not None:
            return new
        return f"{found['image']}[{words}]({found['target']}{found['title'] or ''})"

    return _LINK.sub(one, part)


def mentioned(text: str, change: Callable[[str], str | None]) -> str:
    """The page with what `change` gives in place of each path of a page of docs/ that its prose mentions."""
    return "".join(
        _MENTION.sub(lambda found: change(found[0]) or found[0], part) if prose else part
        for prose, _, part in _prose(text)
    )


def slug(heading: str) -> str:
    """The anchor of a heading, as on the site and in viewers of Markdown files."""
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a page: those of its headings, the second of the same words with -1, and those set by hand."""
    found: dict[str, int] = {}
    names = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for prose, _, part in _prose(text):
        for line in part.splitlines() if prose else ():
            heading = _HEADING.match(line)
            if heading is None:
                continue
            if own := _ID.search(heading[1]):
                names.add(own[1])
                continue
            name = slug(heading[1])
            names.add(f"{name}-{found[name]}" if name in found else name)
            found[name] = found.get(name, 0) + 1
    return names


def outside(target: str) -> bool:
    """Whether a link leads out of these pages."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", target)) or target.startswith("//")


def malformed(target: str) -> str:
    """What is wrong with the form of an address outside, or ""; nobody asks the address itself."""
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError as fault:
        return str(fault)
    if parts.scheme == "mailto":
        return "" if re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", parts.path) else "no address of e-mail"
    if parts.scheme not in ("https", "http"):
        return f"the scheme {parts.scheme or 'that is missing'} is neither https, http nor mailto"
    if not _HOST.match(parts.hostname or "") or port == 0:
        return f"{parts.netloc or 'nothing'} is no name of a host"
    return ""


def target_of(page: str, target: str) -> tuple[str, str]:
    """File and anchor that a link of a page leads to, from the root of the tree; the file "" is above the root."""
    path, _, anchor = target.partition("#")
    where = os.path.normpath(PurePosixPath(page).parent / path) if path else page
    return ("" if where.startswith("..") else where), anchor


def faults(pages: Mapping[str, str], exists: Callable[[str], bool], made: Collection[str] = ()) -> Iterator[str]:
    """What is wrong with the links of pages (path -> text), a sentence each: file:line, what, what next.

    `exists`: whether a path of the tree does. `made`: paths of pages that exist on the site alone.
    """
    known = {path: anchors(text) for path, text in pages.items()}
    for path, text in pages.items():
        for link in links(text):
            place = f"{path}:{link.line}"
            if outside(link.target):
                if wrong := malformed(link.target):
                    yield f"{place}: {link.target}: {wrong}; correct the address"
                continue
            file, anchor = target_of(path, link.target)
            if file in made:
                continue
            if not file or not exists(file):
                yield f"{place}: {link.target} leads to nothing; correct the link"
            elif anchor and file in known and anchor not in known[file]:
                yield f"{place}: {link.target}: {file} has no heading #{anchor}; correct the link"
