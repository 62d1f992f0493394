"""Serial numbers in the report: the line of page one and of the certificate, and the list in annex E."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.model.listed_parts import KINDS, MANY, Doubled, ListedKind, ListedPart, ServerParts, doubled
from validation.report.numbers import many
from validation.report.words import FrontWords

_MOST_TAGS = 6
"""How many service tags page one names; the list has all."""
_MOST_TAG = 16
"""Characters of a service tag there; Dell's have 7."""
_SCREEN, _PAPER = 10_000, 1_500
"""How many parts a browser and paper take; of more, servers whole are shown up to that, and the rest is counted."""


@dataclass(frozen=True)
class SerialLine:
    """What page one and the certificate say of serial numbers, in the language of the page."""

    tags: str
    parts: str


def serial_line(servers: Sequence[ServerParts], words: FrontWords, most: int = _MOST_TAGS) -> SerialLine:
    """Service tags, and for each kind of part how many have a known serial number; what was not read is named."""
    labels = words.labels
    tags = [short(one.service_tag, _MOST_TAG) for one in servers if one.service_tag]
    said = many(tags, most) if tags else labels["not_read"]
    if tags and len(tags) < len(servers):
        said += f" ({labels['not_read_on'].format(machines=words.count(len(servers) - len(tags), 'machines'))})"
    if not any(one.parts for one in servers):
        return SerialLine(f"{labels['service_tags']}: {said}", f"{labels['serials_parts']} {labels['not_read']}")
    counted = [found for kind in KINDS if (found := _kind(kind, servers, words))]
    return SerialLine(f"{labels['service_tags']}: {said}", f"{labels['serials_known']}: {', '.join(counted)}")


def short(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _kind(kind: ListedKind, servers: Sequence[ServerParts], words: FrontWords) -> str:
    """`16 of 16 GPUs`; "" where all servers were read and none has such a part."""
    labels = words.labels
    noun = labels[f"parts_{kind}"]
    parts = [part for one in servers for part in one.of(kind)]
    unread = sum(not one.reading(kind).by for one in servers)
    if not parts:
        return f"{noun} {labels['not_read']}" if unread else ""
    known = sum(part.serial is not None for part in parts)
    said = labels["known_of"].format(known=known, all=len(parts), noun=noun)
    more = labels["not_read_on"].format(machines=words.count(unread, "machines"))
    return f"{said} ({more})" if unread else said


@dataclass(frozen=True)
class KindRow:
    """The parts of a kind in a server, or why there are none: `why` in words, "" where all of them were read."""

    noun: str
    parts: tuple[ListedPart, ...]
    why: str


@dataclass(frozen=True)
class ServerRows:
    """A server in the list of annex E."""

    server: ServerParts
    kinds: tuple[KindRow, ...]


@dataclass(frozen=True)
class PartsList:
    """The list of annex E. `rest`: how many servers are not shown, in words; "" where all are."""

    servers: tuple[ServerRows, ...]
    rest: str
    doubled: tuple[Doubled, ...]


def parts_list(servers: Sequence[ServerParts], printed: bool = False) -> PartsList:
    """All servers with their parts, up to what the medium takes."""
    left = _PAPER if printed else _SCREEN
    shown: list[ServerRows] = []
    for server in servers:
        left -= len(server.parts)
        if left < 0 and shown:
            break
        shown.append(ServerRows(server, tuple(_row(server, kind) for kind in KINDS)))
    more = len(servers) - len(shown)
    where = "report.html" if printed else "report.json"
    rest = f"Not shown: {number_of(more, 'server')}; {where} has all." if more else ""
    return PartsList(tuple(shown), rest, doubled(tuple(servers)))


def _row(server: ServerParts, kind: ListedKind) -> KindRow:
    parts, reading = server.of(kind), server.reading(kind)
    if reading.by:
        why = "" if parts else "none there"
    else:
        why = f"not read{' in full' if parts else ''}: {'; '.join(dict.fromkeys(reading.why))}"
    return KindRow(MANY[kind], parts, why)
