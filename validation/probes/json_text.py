"""JSON that a tool printed, with what else stands in its output: remarks before and after, or the same report twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

#: A report begins a line, or the output, or follows another; what is indented is within another.
_BEGIN, _NEXT = re.compile(r"\A\s*\{|^\{", re.MULTILINE), re.compile(r"\s*\{")


def reports(text: str, constant: Callable[[str], Any] | None = None) -> list[dict[str, Any]]:
    """Every JSON object that begins a line, in order; ValueError for one that is cut or no JSON, and where none is.
    constant: what to do with NaN and Infinity."""
    decoder = json.JSONDecoder(parse_constant=constant) if constant else json.JSONDecoder()
    found: list[dict[str, Any]] = []
    at = 0
    while begin := (_NEXT.match(text, at) if found else None) or _BEGIN.search(text, at):
        value, at = decoder.raw_decode(text, begin.end() - 1)
        found.append(value)
    if not found:
        raise ValueError("no object in it")
    return found


def the_one(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several that are the same, one. ValueError where they differ."""
    if any(one != found[0] for one in found[1:]):
        raise ValueError(f"{len(found)} different reports are in it")
    return found[0]


def report(text: str, constant: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The one report of an output; ValueError as of `reports` and `the_one`."""
    return the_one(reports(text, constant))
