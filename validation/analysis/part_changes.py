"""Parts of two readings of a site by serial number: what was replaced, moved, taken away, added, or is not confirmed.

A part is the same where its serial number is, or without one a MAC address. A server is the same where its service tag
is, so that a node that was renamed keeps its parts. Only what was listed both times is compared: what one of them did
not read is not confirmed, and never gone or new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.model import Model
from validation.model.listed_parts import KINDS, NOUNS, ListedKind, ListedPart, Reader, ServerParts

What = Literal[
    "replaced", "moved", "gone", "new", "server", "server-gone", "server-new", "renamed", "unconfirmed", "first-read"
]
DIFFERENT: tuple[What, ...] = ("server", "replaced", "moved", "gone", "new")
"""What is a difference of the hardware. The others say what is known: a run of some nodes lacks the rest."""


class PartChange(Model):
    """A difference of one part, or of a server. None: not known, or of no such place.

    `what`: `replaced` (another part is in its place), `moved` (to another node or slot), `gone`, `new`, `server`
    (another service tag under the same name), `server-gone`, `server-new` (in one of both alone), `renamed` (the same
    server has another name), `unconfirmed` (not read now), `first-read` (not read before).
    """

    what: What
    node: str
    kind: ListedKind | None = Field(default=None, description="null: the server itself")
    place: str | None = None
    serial: str | None = None
    was_node: str | None = None
    was_place: str | None = None
    was_serial: str | None = None
    why: str = ""

    def said(self, before: str) -> str:
        """In words. `before`: where the former reading is, as "in the report signed on 2026-11-27"."""
        noun = NOUNS[self.kind] if self.kind else "server"
        here = f"{self.node} slot {self.place}" if self.place else self.node
        there = f"{self.was_node} slot {self.was_place}"
        if self.what == "replaced":
            words = f"{here}: {noun} serial {self.serial}, was {self.was_serial} {before}"
        elif self.what == "moved":
            words = f"{here}: {noun} serial {self.serial} moved, was in {there} {before}"
        elif self.what == "gone":
            words = f"{there}: {noun} serial {self.was_serial} {before} is gone"
        elif self.what == "new":
            words = f"{here}: {noun} serial {self.serial} is new, was not {before}"
        elif self.what == "server":
            words = f"{self.node}: service tag {self.serial or 'none'}, was {self.was_serial or 'none'} {before}"
        elif self.what == "server-gone":
            return f"{self.node}: {self.why} (service tag {self.was_serial or 'not read'} {before})"
        elif self.what == "server-new":
            return f"{self.node}: {self.why} {before} (service tag {self.serial or 'not read'})"
        elif self.what == "renamed":
            return f"{self.node}: service tag {self.serial}, was named {self.was_node} {before}"
        else:
            return f"{here}: {noun} {self.why}"
        return f"{words}; {self.why}" if self.why else words


class _Pair:
    """A server in both readings; None where it is in one alone."""

    def __init__(self, old: ServerParts | None, new: ServerParts | None) -> None:
        self.old, self.new = old, new

    @property
    def another(self) -> bool:
        """Whether another server has the name."""
        tags = [one.service_tag.casefold() for one in (self.old, self.new) if one is not None and one.service_tag]
        return len(set(tags)) == 2


class _Known:
    """A part with the pair of its server."""

    def __init__(self, part: ListedPart, pair: _Pair) -> None:
        self.part, self.pair = part, pair
        self.other: _Known | None = None
        self.port = False
        """A port of a card that the other reading, which knows its serial number, lists as one part."""

    @property
    def was(self) -> str:
        return self.pair.old.node if self.pair.old else ""

    @property
    def now(self) -> str:
        return self.pair.new.node if self.pair.new else ""


def part_changes(old: Sequence[ServerParts], new: Sequence[ServerParts]) -> tuple[PartChange, ...]:
    """What is different in `new`: first the differences of the hardware, each sort in the order of the servers."""
    pairs = _pairs(old, new)
    before = [_Known(part, pair) for pair in pairs for part in (pair.old.parts if pair.old else ())]
    after = [_Known(part, pair) for pair in pairs for part in (pair.new.parts if pair.new else ())]
    _match(before, after)
    found: list[PartChange] = []
    of_pair: dict[int, tuple[list[_Known], list[_Known]]] = {id(pair): ([], []) for pair in pairs}
    for place, side in enumerate((before, after)):
        for one in side:
            of_pair[id(one.pair)][place].append(one)
    for pair in pairs:
        was, now = of_pair[id(pair)]
        server, parts = _server(pair), []
        for kind in KINDS:
            mine, here = ([one for one in side if one.part.kind == kind] for side in (was, now))
            parts += _kind(kind, pair, mine, here)
        if pair.another:  # whose own parts went with it
            others = sum(one.what in ("replaced", "new") for one in parts)
            why = f"another server, with {number_of(others, 'other part')}"
            server = [one.model_copy(update={"why": why}) for one in server]
            parts = [one for one in parts if one.what == "moved"]
        found += server + parts
    return tuple(sorted(found, key=lambda one: one.what not in DIFFERENT))


def _pairs(old: Sequence[ServerParts], new: Sequence[ServerParts]) -> list[_Pair]:
    """Servers by service tag, where that is one server's in both; the others by name."""
    tags = _once(old), _once(new)
    by_tag = {tags[1][tag].node: tags[0][tag] for tag in tags[0].keys() & tags[1].keys()}
    taken = {server.node for server in by_tag.values()}
    names = {server.node: server for server in old if server.node not in taken}
    pairs = [_Pair(by_tag.get(server.node) or names.pop(server.node, None), server) for server in new]
    return pairs + [_Pair(server, None) for server in names.values()]


def _once(servers: Sequence[ServerParts]) -> dict[str, ServerParts]:
    found: dict[str, list[ServerParts]] = {}
    for server in servers:
        if server.service_tag:
            found.setdefault(server.service_tag.casefold(), []).append(server)
    return {tag: mine[0] for tag, mine in found.items() if len(mine) == 1}


def _match(before: Sequence[_Known], after: Sequence[_Known]) -> None:
    """Parts of both readings that are the same: those that stayed first, then those in the same server."""

    def stayed(one: _Known, other: _Known) -> bool:
        return one.pair is other.pair and bool(one.part.places & other.part.places)

    def same_server(one: _Known, other: _Known) -> bool:
        return one.pair is other.pair

    def any_server(one: _Known, other: _Known) -> bool:
        return True

    for level in ("serial ", "mac "):
        for fits in (stayed, same_server, any_server):
            index: dict[tuple[str, str, int], list[_Known]] = {}  # small lists, where a site has one serial number
            for was in before:
                for key in was.part.keys if was.other is None else ():
                    server = 0 if fits is any_server else id(was.pair)
                    index.setdefault((was.part.kind, key, server), []).append(was)
            for now in after:
                server = 0 if fits is any_server else id(now.pair)
                for key in (one for one in now.part.keys if now.other is None and one.startswith(level)):
                    mine = index.get((now.part.kind, key, server), [])
                    found = (one for one in mine if one.other is None and _one(one, now) and fits(one, now))
                    if now.other is None and (same := next(found, None)) is not None:
                        mine.remove(same)
                        same.other, now.other = now, same
    for these, theirs in ((before, after), (after, before)):
        known = {mac for one in theirs if one.other is not None for mac in one.part.macs}
        for one in these:
            macs = one.part.macs
            one.port = one.other is None and one.part.serial is None and bool(macs) and known.issuperset(macs)


def _one(was: _Known, now: _Known) -> bool:
    """Not two serial numbers behind one MAC address."""
    mine = was.part.serial, now.part.serial
    return None in mine or str(mine[0]).casefold() == str(mine[1]).casefold()


def _server(pair: _Pair) -> list[PartChange]:
    old, new = pair.old, pair.new
    if new is None:
        assert old is not None
        why = f"the server with its {number_of(len(old.parts), 'part')} is not among those that were read now"
        return [PartChange(what="server-gone", node=old.node, was_node=old.node, was_serial=old.service_tag, why=why)]
    if old is None:
        why = f"the server with its {number_of(len(new.parts), 'part')} is not"
        return [PartChange(what="server-new", node=new.node, serial=new.service_tag, why=why)]

    def said(what: What, why: str = "") -> list[PartChange]:
        tags = new.service_tag, old.service_tag
        return [PartChange(what=what, node=new.node, serial=tags[0], was_node=old.node, was_serial=tags[1], why=why)]

    if pair.another:
        return said("server", "another server")
    if old.service_tag and new.service_tag and old.node != new.node:
        return said("renamed")
    if old.service_tag and not new.service_tag:
        return said("unconfirmed", "service tag is not read now")
    if new.service_tag and not old.service_tag:
        return said("first-read", "service tag was not read before")
    return []


def _kind(kind: ListedKind, pair: _Pair, mine: Sequence[_Known], here: Sequence[_Known]) -> list[PartChange]:
    """The parts of a kind of one server."""
    found = [_change("moved", now, now.other) for now in here if now.other is not None and _other_place(now, now.other)]
    lost = [was for was in mine if was.other is None and was.part.keys and not was.port]
    fresh = [now for now in here if now.other is None and now.part.keys and not now.port]
    blank_now = [now for now in here if now.other is None and not now.part.keys]
    blank_then = [was for was in mine if was.other is None and not was.part.keys]
    if pair.new is None or pair.old is None:
        return found  # said of the server as a whole
    confirmed = first = 0
    for now in fresh:
        was = next((one for one in lost if one.part.places & now.part.places), None)
        if was is not None:
            lost.remove(was)
            found.append(_change("replaced", now, was))
        elif (blank := _blank(now, blank_then)) is not None:
            blank_then.remove(blank)
            first += 1
        elif set(now.part.by) & set(pair.old.reading(kind).by):
            found.append(_change("new", now, None, _in_place_of(now, mine)))
        else:
            first += 1
    for was in lost:
        if (blank := _blank(was, blank_now)) is not None:
            blank_now.remove(blank)
            confirmed += 1
        elif set(was.part.by) & set(pair.new.reading(kind).by):
            found.append(_change("gone", None, was, _in_its_place(was, here)))
        else:
            confirmed += 1
    node, then = pair.new.node, pair.old.node
    if confirmed:
        words = f"serial numbers of {confirmed} are not confirmed: not read now{_unread(pair.new, kind)}"
        found.append(PartChange(what="unconfirmed", node=node, kind=kind, was_node=then, why=words))
    if first:
        words = f"serial numbers of {first} cannot be compared: not read before{_unread(pair.old, kind)}"
        found.append(PartChange(what="first-read", node=node, kind=kind, was_node=then, why=words))
    return found


def _unread(server: ServerParts | None, kind: ListedKind) -> str:
    why = server.reading(kind).why if server is not None else ()
    return f" ({'; '.join(dict.fromkeys(why))})" if why else ""


def _blank(part: _Known, blanks: Sequence[_Known]) -> _Known | None:
    """The part without a serial number that it may be: the one in its place, or any whose place is not known."""
    same = next((one for one in blanks if one.part.places & part.part.places), None)
    return same or next((one for one in blanks if not _by_one(one, part)), None)


def _by_one(one: _Known, other: _Known) -> bool:
    """Whether both places are named by the same reader, so that they are known to differ."""
    named: list[set[Reader]] = [{reader for reader, _ in each.part.places} for each in (one, other)]
    return bool(named[0] & named[1])


def _other_place(now: _Known, was: _Known) -> bool:
    return now.pair is not was.pair or (_by_one(now, was) and not now.part.places & was.part.places)


def _in_place_of(now: _Known, mine: Iterable[_Known]) -> str:
    """What was in the place of a new part and is elsewhere now."""
    was = next((one for one in mine if one.part.places & now.part.places and one.other is not None), None)
    if was is None or was.other is None or not _other_place(was.other, was):
        return ""
    return f"serial {was.part.serial}, which was there, is in {was.other.now} slot {was.other.part.place}"


def _in_its_place(was: _Known, here: Iterable[_Known]) -> str:
    now = next((one for one in here if one.part.places & was.part.places), None)
    return f"in its place is serial {now.part.serial}, which moved there" if now and now.part.serial else ""


def _change(what: What, now: _Known | None, was: _Known | None, why: str = "") -> PartChange:
    some = now or was
    assert some is not None
    return PartChange(
        what=what,
        node=now.now if now else (was.now or was.was) if was else "",
        kind=some.part.kind,
        place=now.part.place if now else None,
        serial=_name(now),
        was_node=was.was if was else None,
        was_place=was.part.place if was else None,
        was_serial=_name(was),
        why=why,
    )


def _name(one: _Known | None) -> str | None:
    """Its serial number; without one its MAC address."""
    if one is None:
        return None
    return one.part.serial or (f"not read, MAC {one.part.macs[0]}" if one.part.macs else None)
