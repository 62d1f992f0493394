"""One thing damaged at a time in what a probe sent: a line, a key, a number, an entry, or two outputs in one."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

Doc = dict[str, Any]
NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(?![\w.])")
HUGE = 10**400
VALUES: tuple[Any, ...] = (None, "", "many", [], {}, True, math.nan, math.inf, 1e308, HUGE)
WORDS = ("", "x", "nan", "inf", "1e308", "9" * 400)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and entry below `value`."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from _paths(value[key], (*path, key))


def _values(tree: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """What can become of the entry at `path`: (words, a function of its holder)."""
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    last, old = path[-1], holder[path[-1]]

    def put(new: Any) -> Callable[[Any], Any]:
        return lambda holder: holder.__setitem__(last, new)

    yield "dropped", lambda holder: holder.pop(last)
    for new in VALUES:
        yield f"= {str(new)[:20]!r}", put(new)
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        yield "negated", put(-old)
        yield "as text", put(str(old))
    if isinstance(holder, list):
        yield "twice", lambda holder: holder.insert(last, copy.deepcopy(holder[last]))
        if last + 1 < len(holder):
            yield "swapped", lambda holder: holder.__setitem__(slice(last, last + 2), holder[last : last + 2][::-1])


def in_tree(tree: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(words, a damaged copy) for each damage of a JSON value."""
    for path in _paths(tree):
        for words, change in _values(tree, path):

            def make(path: tuple[Any, ...] = path, change: Callable[[Any], Any] = change) -> Any:
                damaged = copy.deepcopy(tree)
                holder = damaged
                for key in path[:-1]:
                    holder = holder[key]
                change(holder)
                return damaged

            yield f"{'.'.join(map(str, path))} {words}", make


def in_text(text: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """(words, a damaged copy) for each damage of a line or of a number in it."""
    lines = text.splitlines(keepends=True)

    def with_line(at: int, *new: str) -> Callable[[], str]:
        return lambda: "".join([*lines[:at], *new, *lines[at + 1 :]])

    for at, line in enumerate(lines):
        yield f"line {at} dropped", with_line(at)
        yield f"line {at} empty", with_line(at, "\n")
        yield f"line {at} cut", with_line(at, line[: len(line) // 2] + "\n")
        yield f"line {at} twice", with_line(at, line, line)
        yield f"cut at line {at}", lambda at=at: "".join(lines[:at])
        if at + 1 < len(lines):
            yield (
                f"line {at} swapped",
                lambda at=at: "".join([*lines[:at], lines[at + 1], line_of(lines, at), *lines[at + 2 :]]),
            )
        for match in NUMBER.finditer(line) if len(line) < 300 else ():
            for word in (*WORDS, "-" + match[0]):
                new = line[: match.start()] + word + line[match.end() :]
                yield f"line {at}: {match[0]} became {word[:20]!r}", with_line(at, new)


def line_of(lines: list[str], at: int) -> str:
    """A line that ends as a line does."""
    return lines[at] if lines[at].endswith("\n") else lines[at] + "\n"


def of(doc: Doc, others: tuple[str, ...] = ()) -> list[tuple[str, Callable[[], Doc]]]:
    """Every damage of one thing in a document: its facts, its output as text, and the JSON in its output."""
    found: list[tuple[str, Callable[[], Doc]]] = []
    for words, make in in_tree(doc["facts"]):
        found.append((f"facts: {words}", lambda make=make: {**doc, "facts": make()}))
    text: str = doc["stdout"]
    for other in dict.fromkeys((text, *others)):
        if text.strip():
            found.append(("two outputs", lambda other=other: {**doc, "stdout": text + other}))
            found.append(("two outputs", lambda other=other: {**doc, "stdout": other + text}))
    start = text.find("{")
    try:
        report = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        report = None
    if report is None:
        for words, make_text in in_text(text):
            found.append((f"stdout: {words}", lambda make=make_text: {**doc, "stdout": make()}))
        return found
    for words, make in in_tree(report):
        found.append(
            (f"stdout: {words}", lambda make=make: {**doc, "stdout": text[:start] + json.dumps(make()) + "\n"})
        )
    return found
