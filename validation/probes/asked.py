"""What a probe is asked for: one JSON object, held against the fields of the probe's own `Asked`."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read(what: type[T], text: str) -> T:
    """`what` (a dataclass) from a JSON object; ValueError names a key that is unknown, missing or of another type."""
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("the parameters are not a JSON object")
    return make(what, given)


def make(what: type[T], given: dict[str, Any]) -> T:
    """`what` (a dataclass) from an object; ValueError as for `read`."""
    wanted = {field.name: field for field in fields(what)}  # type: ignore[arg-type]
    unknown = sorted(set(given) - set(wanted))
    if unknown:
        raise ValueError(f"unknown parameter {unknown[0]!r}; known: {', '.join(wanted)}")
    needed = [n for n, f in wanted.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise ValueError(f"missing parameter {missing[0]!r}; needed: {', '.join(needed)}")
    hints = get_type_hints(what)
    for name, value in given.items():
        if not _fits(value, hints[name]):
            raise ValueError(f"parameter {name!r} is {value!r}, not {getattr(hints[name], '__name__', hints[name])}")
    return what(**given)


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict)
    if isinstance(value, bool):  # which Python counts among the integers
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
