"""What ends a signed paper before its last day: firmware and GPU driver of two readings of the same servers. Pure.

Other parts are compared by part_changes.py. What one of both did not read is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from validation.model.listed_parts import NOUNS, ListedPart, ServerParts


def ended_by(then: Sequence[ServerParts], now: Sequence[ServerParts]) -> tuple[str, ...]:
    """One line for each firmware or driver that is another."""
    tags = {one.service_tag.casefold(): one for one in then if one.service_tag}
    names = {one.node: one for one in then}
    found: list[str] = []
    for server in now:
        before = tags.get((server.service_tag or "").casefold()) or names.get(server.node)
        if before is not None:
            found += _server(before, server)
    return tuple(found)


def _server(before: ServerParts, now: ServerParts) -> Iterator[str]:
    if before.driver and now.driver and before.driver != now.driver:
        yield f"{now.node}: GPU driver {now.driver}, was {before.driver}"
    known = {(part.kind, key): part for part in before.parts for key in part.keys}
    for part in now.parts:
        was = next((known[part.kind, key] for key in part.keys if (part.kind, key) in known), None)
        if was is not None and _other(was, part):
            place = f"{now.node} slot {part.place}"
            yield f"{place}: {NOUNS[part.kind]} firmware {part.firmware}, was {was.firmware}"


def _other(was: ListedPart, now: ListedPart) -> bool:
    return bool(was.firmware and now.firmware) and was.firmware != now.firmware
