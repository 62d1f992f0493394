"""Where the words of a PDF differ from those of another one of the same text, whose fonts and line breaks are others.

Lines and pages break elsewhere with other fonts, so that no page can be held against a page. But every word of the one
stands in the other, and neither runs, opens or carries anything. That is what can be said for certain: a difference
that is found is one, and where none is found the PDF was still not compared byte by byte.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

#: What makes a PDF do something, or carry something, that no report does.
ACTIVE = (
    "JavaScript", "JS", "OpenAction", "AA", "Launch", "SubmitForm", "ImportData", "AcroForm", "XFA", "EmbeddedFile",
    "EmbeddedFiles", "FileAttachment", "RichMedia", "Movie", "Sound", "3D", "Screen", "FreeText", "Stamp", "Popup",
    "Widget", "Ink", "Highlight", "Redact", "Watermark", "Encrypt", "OCG", "GoToR", "GoToE", "Annots", "URI",
    "Type1", "TrueType", "MMType1",
)  # fmt: skip
#: Notes and drawings on a page, whose names mean other things elsewhere.
NOTES = (
    "Text", "Square", "Circle", "Line", "Polygon", "PolyLine", "Underline", "Squiggly", "StrikeOut", "Caret", "Link",
    "PS", "Projection",
)  # fmt: skip
_STREAM_BYTES, _ALL_BYTES = 128 << 20, 1 << 30
_OBJECT = re.compile(rb"(?:^|[\r\n ])(\d{1,7}) 0 obj\b")
_STREAM = re.compile(rb">>\s*stream\r?\n")
_LENGTH = re.compile(rb"/Length (\d{1,10})(?! \d+ R)")
_NAME = re.compile(rb"/([A-Za-z0-9#]+)")
_SUBTYPE = re.compile(rb"/Subtype\s*/([A-Za-z0-9#]+)")
_FONT = re.compile(rb"/([A-Z]{6}) (\d{1,7}) 0 R")
_TO_UNICODE = re.compile(rb"/ToUnicode (\d{1,7}) 0 R")
_PAIR = re.compile(rb"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>")
_SHOWN = re.compile(rb"\bBT\b|/([A-Z]{6}) [\d.]+ Tf|<([0-9A-Fa-f]*)>(?=[^\[\]]*\]\s*TJ|\s*Tj)")
_SOFT = "\u00ad\u2010"
_HYPHENS = "-\u00ad\u2010\u2011"
_NAMED = 5


class _Unreadable(Exception):
    """Not of the form that this toolkit's PDFs have, so that nothing can be said of its words."""


def differences(stands: bytes, made: bytes) -> tuple[str, ...]:
    """What `stands` says or does that `made` does not, and the reverse; nothing where that cannot be told."""
    try:
        here, there = _Pdf(stands), _Pdf(made)
    except _Unreadable:
        return ()
    found = []
    active = [name for name in ACTIVE if name in here.names - there.names]
    active += [name for name in NOTES if name in here.subtypes - there.subtypes]
    if active:
        found.append(f"does or carries what no report does: {', '.join(active)}; it was edited")
    if not there.runs:
        return tuple(found)
    for words, said, whole in (
        ("says what the data of the run do not give", here, there),
        ("lacks what the data of the run give", there, here),
    ):
        odd = [word for word in said.words() if not whole.says(word)]
        if odd:
            more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
            found.append(f"{words}: {', '.join(repr(word) for word in odd[:_NAMED])}{more}; it was edited")
    return tuple(found)


class _Pdf:
    """Names of its dictionaries, and the runs of text that it draws, in the order of the file."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(b"%PDF-"):
            raise _Unreadable
        self._left = _ALL_BYTES
        objects: dict[int, tuple[bytes, bytes]] = {}
        for number, head, stream in self._objects(data):
            objects[number] = (head, stream)
            if b"/ObjStm" in head:
                objects |= {n: (part, b"") for n, part in _packed(head, stream)}
        heads = [head for head, _ in objects.values()]
        self.names = {_plain(name) for head in heads for name in _NAME.findall(head)}
        self.subtypes = {_plain(name) for head in heads for name in _SUBTYPE.findall(head)}
        self.pages = sum(b"/Type /Page" in head and b"/Type /Pages" not in head for head in heads)
        fonts = {name: int(number) for head in heads for name, number in _FONT.findall(head)}
        maps = {name: _characters(objects, number) for name, number in fonts.items()}
        self.runs = [run for _, stream in objects.values() if b"BT" in stream for run in _runs(stream, maps)]
        self.text = "".join("".join(run.split()) for run in self.runs)
        lines = [words for run in self.runs if (words := run.split())]
        self._first, self._last = {words[0] for words in lines}, {words[-1].rstrip(_SOFT) for words in lines}

    def _objects(self, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        at = 0
        while match := _OBJECT.search(data, at):
            end = data.find(b"endobj", match.end())
            if end < 0:
                raise _Unreadable
            body = data[match.end() : end]
            stream = _STREAM.search(body)
            if stream is None:
                yield int(match[1]), body, b""
                at = end
                continue
            head = body[: stream.start() + 2]
            length = _LENGTH.search(head)
            if length is None:
                raise _Unreadable
            start = match.end() + stream.end()
            at = start + int(length[1])
            yield int(match[1]), head, self._unpacked(head, data[start:at])

    def _unpacked(self, head: bytes, packed: bytes) -> bytes:
        if b"/Filter" not in head:
            return packed
        if b"/FlateDecode" not in head:
            return b""  # a picture
        try:
            plain = zlib.decompressobj().decompress(packed, _STREAM_BYTES)
        except zlib.error:
            raise _Unreadable from None
        self._left -= len(plain)
        if self._left < 0:
            raise _Unreadable
        return plain

    def says(self, word: str) -> bool:
        """Whether a word stands in it, whole or broken at the end of a line or page."""
        return word in self.text or any(
            word[:at].rstrip(_SOFT) in self._last and word[at:] in self._first for at in range(1, len(word))
        )

    def words(self) -> Iterator[str]:
        """Each word once; not the numbers of pages, which other fonts change."""
        for word in dict.fromkeys(word for run in self.runs for word in run.split()):
            bare = word.strip(_HYPHENS)
            if bare and not (bare.isdecimal() and len(bare) < 6 and int(bare) <= self.pages):
                yield bare


def _plain(name: bytes) -> str:
    """A name without its escapes."""
    return re.sub(rb"#([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), name).decode("latin-1")


def _packed(head: bytes, stream: bytes) -> Iterator[tuple[int, bytes]]:
    """The objects of an object stream."""
    count, first = re.search(rb"/N (\d{1,7})", head), re.search(rb"/First (\d{1,9})", head)
    if count is None or first is None:
        raise _Unreadable
    numbers = stream[: int(first[1])].split()
    if len(numbers) < 2 * int(count[1]) or not all(number.isdigit() for number in numbers):
        raise _Unreadable
    places = [(int(n), int(first[1]) + int(at)) for n, at in zip(numbers[::2], numbers[1::2], strict=False)]
    for (number, start), end in zip(places, [*(at for _, at in places[1:]), len(stream)], strict=True):
        yield number, stream[start:end]


def _characters(objects: dict[int, tuple[bytes, bytes]], number: int) -> dict[bytes, str]:
    """Of a font: glyph -> characters."""
    unicode = _TO_UNICODE.search(objects.get(number, (b"", b""))[0])
    text = objects.get(int(unicode[1]), (b"", b""))[1] if unicode else b""
    text = text.partition(b"endcodespacerange")[2]
    return {glyph.lower(): bytes.fromhex(said.decode()).decode("utf-16-be", "replace")
            for glyph, said in _PAIR.findall(text) if len(said) % 4 == 0}  # fmt: skip


def _runs(stream: bytes, maps: dict[bytes, dict[bytes, str]]) -> Iterator[str]:
    """Texts that are drawn in one piece."""
    font: dict[bytes, str] = {}
    run: list[str] = []
    for match in _SHOWN.finditer(stream):
        if match[1] is not None:
            font = maps.get(match[1], {})
        elif match[2] is not None:
            glyphs = match[2].lower()
            run += [font.get(glyphs[i : i + 4], "\ufffd") for i in range(0, len(glyphs), 4)]
        elif run:
            yield "".join(run)
            run = []
    if run:
        yield "".join(run)
