"""Texts of a run as they are kept: the documents that people read beside what the toolkit reads in them.

A comment, a second spelling of a number or an escaped word says something to a reader that no hash of what is read
holds. So a run keeps rules in one of two forms alone: byte for byte the text of a release, or the plain text that the
toolkit writes of what it read (`as_kept`). JSON is as the toolkit writes it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation

import yaml

from validation.base.yaml_text import parse_yaml, plain
from validation.model.base import Model
from validation.run.rules_hashes import own, register

_SHOWN = 60
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[0-9.eE+-]*')
_DIGITS = 40


def as_kept(text: str) -> str:
    """A YAML text as a run keeps it: that of a release as it is, any other by what is read of it."""
    if of_a_release(text):
        return text
    try:
        return plain(parse_yaml(text))
    except (yaml.YAMLError, RecursionError):  # whoever reads it tells that
        return text


def of_a_release(text: str) -> bool:
    """Whether a text is, byte for byte, one of this release's or of an earlier one's files of rules."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    known = (sha256 in rules.texts.values() for rules in register().values())
    return any(known) or sha256 in own().texts.values()  # of a checkout whose register is older than its rules


def odd_yaml(text: str) -> str | None:
    """Where a YAML text of a run is not as it is kept: the first such line, and words; None where it is."""
    return _first_other(text, as_kept(text), "is neither a release's nor what the toolkit writes of what it says")


def odd_json(text: str, document: Model) -> str | None:
    """Where a JSON text of a run is not as `document`, which was read of it, is written."""
    wanted = "".join(document.written())
    if text in (wanted, wanted[:-1]):
        return None
    earlier = document.model_dump_json(indent=2, exclude_unset=True)  # by a release with fewer keys
    if _numbers(text.removesuffix("\n")) in (_numbers(earlier), _numbers(wanted[:-1])):
        return None
    return _first_other(text, wanted, "is not as the toolkit writes it")


def odd_lines(text: bytes, documents: Sequence[Model]) -> Iterator[int]:
    """Lines (from 1) of a text with one JSON document each that are not as these documents are written."""
    for number, (line, document) in enumerate(zip(text.split(b"\n"), documents, strict=False), start=1):
        if line != document.model_dump_json().encode():
            said = _numbers(line.decode())
            if said not in (_numbers(document.model_dump_json(exclude_unset=True)),
                            _numbers(document.model_dump_json())):  # fmt: skip
                yield number


def _numbers(text: str) -> str:
    """A JSON text with each number in one form, since libraries write 1e-05 and 0.00001."""

    def one(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith('"') or len(token) > _DIGITS:
            return token
        try:
            number = Decimal(token)
        except InvalidOperation:
            return token
        return str(number.normalize()) + ("." if set(token) & set(".eE") else "")

    return _TOKEN.sub(one, text)


def _first_other(text: str, wanted: str, words: str) -> str | None:
    if text == wanted:
        return None
    here, there = text.split("\n"), wanted.split("\n")
    same = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    shown = here[same] if same < len(here) else ""
    shown = shown.strip() if len(shown.strip()) <= _SHOWN else f"{shown.strip()[:_SHOWN]}..."
    return f"line {same + 1} {words}: {shown!r}"
