"""The host variable `storage` of an inventory: what is measured, checked once, for each host and over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from validation.model.base import explain
from validation.model.storage import Storage

Place = tuple[int | str, ...]


class StorageFault(ValueError):
    """`place`: below which the fault is, beginning with the variable."""

    def __init__(self, place: Place, words: str) -> None:
        """The fault and its place."""
        super().__init__(words)
        self.place = place


def storages(given: Iterable[Mapping[str, Any]]) -> tuple[Storage, ...]:
    """Those of a host; StorageFault with the first thing to correct."""
    found: list[Storage] = []
    for at, one in enumerate(given):
        try:
            storage = Storage.model_validate(dict(one))
        except ValidationError as fault:
            place, words = explain(fault)
            raise StorageFault(("storage", at, *place), words) from None
        for other in found:
            if other.name == storage.name:
                raise StorageFault(("storage", at, "name"), f"{other.name} is there twice; give each its own name")
            if other.path == storage.path:
                raise StorageFault(("storage", at, "path"), f"{other.path} is that of {other.name}; measure it once")
        found.append(storage)
    return tuple(found)


def agree(every: Mapping[str, tuple[Storage, ...]]) -> tuple[str, Place, str] | None:
    """The first host whose storage differs from what another says of the same name, the place and why; None: agreed."""
    first: dict[str, tuple[str, Storage]] = {}
    for host, mine in every.items():
        for at, storage in enumerate(mine):
            other, known = first.setdefault(storage.name, (host, storage))
            if known.shared != storage.shared:
                words = f"{storage.name} is shared on {other if known.shared else host}, and not on the other"
                return host, ("storage", at, "shared"), f"{words}; give it one name for each storage"
            if known.shared and storage.model_copy(update={"path": known.path}) != known:
                words = f"{storage.name} is declared otherwise than on {other}; set it once, in group_vars"
                return host, ("storage", at), words
    return None
