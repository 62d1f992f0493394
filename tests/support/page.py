"""A report as a browser reads it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "col", "hr", "img", "input"}


# the only references that may stand in the file: places in it, and an empty icon
INNER = re.compile(r"^(#|data:,$|url\(#)")


class Page(HTMLParser):
    """Parses the whole report, and fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == [], f"never closed: {self.stack}"

    def handle_starttag(self, tag, attrs):
        attributes = {k: v or "" for k, v in attrs}
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        names = ("href", "src", "srcset", "action", "data", "poster", "xlink:href", "background", "formaction")
        self.references += [attributes[n] for n in names if n in attributes]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1] == tag, f"</{tag}> closes <{self.stack[-1]}> at {self.getpos()}"
        self.stack.pop()

    def handle_data(self, data):
        if not self.stack or self.stack[-1] not in ("style", "script"):
            self.words.append(data)

    def whole(self) -> None:
        """Fails on an id that is there twice, and on a reference that leads out of the file or nowhere."""
        assert len(self.ids) == len(set(self.ids))
        for reference in self.references:
            assert INNER.match(reference), f"{reference} leads out of the file"
            assert reference[1:] in self.ids or not re.match("#.", reference), f"{reference} leads nowhere"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def every(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]
