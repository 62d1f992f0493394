"""What the parsers share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from validation.model import Sample, Scalar

Facts = dict[str, Scalar | list[str]]
Parsed = tuple[list[Sample], Facts]


class ParseError(Exception):
    """Output that cannot be used: the tool failed, was cut off, or did not do what was asked."""


def number(value: object, what: str) -> float:
    """`value` as a finite float above zero; ParseError names it as `what`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParseError(f"{what}: {value!r} is no number")
    result = float(value)
    if not math.isfinite(result) or result <= 0:
        raise ParseError(f"{what}: {result} is no usable value")
    return result


def count(value: object, what: str) -> float:
    """`value` as a whole number of at least zero; ParseError names it as `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{what}: {value!r} is no count")
    return float(value)


def expect(params: Mapping[str, Scalar], key: str, found: object, what: str) -> None:
    """ParseError where the plan has `key` and the tool did something else."""
    if key in params and params[key] != found:
        raise ParseError(f"{what}: {params[key]} planned, but the tool reports {found}")


def plain(raw: Mapping[str, object], drop: tuple[str, ...] = ()) -> Facts:
    """Facts that a result can hold: scalars and lists of text; anything else is dropped (it stands in the raw log)."""
    facts: Facts = {}
    for key, value in raw.items():
        if key in drop:
            continue
        if value is None or isinstance(value, (str, int, bool)) or (isinstance(value, float) and math.isfinite(value)):
            facts[key] = value
        elif isinstance(value, list) and all(isinstance(v, str) for v in value):
            facts[key] = list(value)
    return facts


def json_object(text: str, what: str) -> dict[str, object]:
    """`text` as a JSON object without NaN or Infinity; ParseError where it is cut or not JSON."""

    def refuse(constant: str) -> object:
        raise ParseError(f"{what}: {constant} is no number")

    try:
        data = json.loads(text, parse_constant=refuse)
    except ValueError as e:
        raise ParseError(f"{what} is no whole JSON document: {e}") from None
    if not isinstance(data, dict):
        raise ParseError(f"{what} is no JSON object")
    return data
