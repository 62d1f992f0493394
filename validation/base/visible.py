"""Text that did not come from the toolkit, made so that it can only be read: nothing in it moves a cursor, changes the
direction of what is beside it, or hides.

The one place that knows which characters these are. Streams (`toolkit/streams.py`), pages and files are made by it.
"""

from __future__ import annotations

import re

#: C0 and C1 with DEL; soft hyphen; zero width and direction; separators of lines; BOM; tags; surrogates.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_LINES = re.compile("[\n\t]")
#: ASCII that can be seen, as bytes
_PLAIN = bytes(code for code in range(128) if not _ODD.match(chr(code)))
PIECE_BYTES = 1 << 20


def visible(text: str) -> str:
    """One line of text with everything that could not be seen written out, as `\\u001b` and `\\u202e`."""
    return _LINES.sub(_written, _ODD.sub(_written, text))


def visible_lines(text: str) -> str:
    """The same of text of several lines, whose line breaks and tabs are its own."""
    return text if text.isascii() and text.isprintable() else _ODD.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    """As JSON writes it, so that a JSON text stays one and says the same."""
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def hidden(text: str) -> bool:
    """Whether something in a text of several lines cannot be seen."""
    return _ODD.search(text) is not None


def clean(content: bytes) -> bool:
    """Whether everything in a UTF-8 text of several lines can be seen: `hidden` of it, without a copy of all of it, for
    the text of a fleet's report has hundreds of megabytes.
    """
    begin = 0
    while begin < len(content):
        end = content.find(b"\n", begin + PIECE_BYTES) + 1 or len(content)
        piece = content[begin:end]
        if piece.translate(None, _PLAIN) and hidden(piece.decode()):
            return False
        begin = end
    return True


__all__ = ["clean", "hidden", "visible", "visible_lines"]
