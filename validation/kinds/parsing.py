"""What the parsers share."""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

from pydantic import ValidationError

from validation.model import Model, Sample, Scalar
from validation.model.base import explain
from validation.model.facts import AnyFacts, PlainFacts
from validation.probes.json_text import report

Facts = PlainFacts
MOST = 2**64
"""No counter or size is larger; a whole number beyond it is none."""
Parsed = tuple[list[Sample], AnyFacts]
M = TypeVar("M", bound=Model)


class ParseError(Exception):
    """Output that cannot be used: the tool failed, was cut off, or did not do what was asked."""


def place(fault: BaseException) -> str:
    """Where an exception that nobody foresaw was raised, and its words: `ping.py:40 in parse: KeyError: 3`."""
    frames = traceback.extract_tb(fault.__traceback__)
    at = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}: " if frames else ""
    return f"{at}{type(fault).__name__}: {short(' '.join(str(fault).split()))}"


def short(value: object, limit: int = 200) -> str:
    """A value in the words of an error: tools print numbers of any length."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def real(value: object, what: str) -> float:
    """`value`, a number or text that holds one, as a finite float; ParseError names it as `what`."""
    if type(value) is float and math.isfinite(value):
        return value  # as nearly all are; a run of a fleet has millions of them
    try:
        result = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise ParseError(f"{what}: {short(value)} is not a number")
    return result


def number(value: object, what: str) -> float:
    """`value` as a finite float above zero; ParseError names it as `what`."""
    if type(value) is float and 0 < value < math.inf:
        return value
    if isinstance(value, str):
        raise ParseError(f"{what}: {short(repr(value))} is not a number")
    result = real(value, what)
    if result <= 0:
        raise ParseError(f"{what}: {result} is not a usable value")
    return result


def count(value: object, what: str) -> float:
    """`value` as a whole number of at least zero; ParseError names it as `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{what}: {short(value)} must be an integer >= 0")
    return real(value, what)


def flag(value: object, what: str) -> bool:
    """`value`, which must be true or false; ParseError names it as `what`."""
    if not isinstance(value, bool):
        raise ParseError(f"{what}: {short(value)} is neither true nor false")
    return value


def once(pattern: str | re.Pattern[str], text: str, what: str) -> re.Match[str]:
    """The one match of `pattern`; ParseError where there is none, or more than one: two reports are no report."""
    found = list(re.finditer(pattern, text, re.MULTILINE if isinstance(pattern, str) else 0))
    if not found:
        raise ParseError(f"no {what} in the output; is it cut?")
    if len(found) > 1:
        raise ParseError(f"{what} stands {len(found)} times in the output: more than one report")
    return found[0]


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
        if isinstance(value, int) and abs(value) > MOST:
            continue
        if value is None or isinstance(value, (str, int, bool)) or (isinstance(value, float) and math.isfinite(value)):
            facts[key] = value
        elif isinstance(value, list) and all(isinstance(v, str) for v in value):
            facts[key] = list(value)
        elif isinstance(value, dict) and all(_counted(v) for v in value.values()):
            facts[key] = dict(value)
    return facts


def as_facts(form: type[M], raw: object, what: str) -> M:
    """What a probe printed as the facts of that form; ParseError with the field that is missing or of a wrong type."""
    try:
        return form.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as fault:
        location, words = explain(fault)
        raise ParseError(f"{what}: {'.'.join(map(str, location))}: {words}") from None


def _counted(value: object) -> bool:
    """True for a number that a result can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST


def fit(samples: Sequence[Sample], facts: AnyFacts) -> None:
    """ParseError where a result could not hold what a parser made, or could not be read back as it was written."""
    for sample in samples:
        real(sample.value, sample.metric)
    if not isinstance(facts, dict):
        return  # a model has been checked when it was made
    for key, value in facts.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            continue
        if isinstance(value, dict) and all(map(_counted, value.values())):
            continue
        if isinstance(value, float):
            real(value, key)
        elif isinstance(value, int) and abs(value) > MOST:
            raise ParseError(f"{key}: {short(value)} is not a number")
        elif value is not None and not isinstance(value, (str, int, bool)):
            raise ParseError(f"{key}: {short(value)} is no text, number or list of text")


def json_report(
    text: str, what: str, read: Callable[[str, Callable[[str], object]], dict[str, object]] = report
) -> dict[str, object]:
    """The JSON object in what a tool of others printed: remarks may stand before and after it, and it may stand there
    twice. ParseError as json_object, and where it has two that differ. read: how its objects make a report."""
    try:
        return read(text, _refuse(what))
    except ValueError as e:
        raise ParseError(f"{what} is no whole JSON document: {e}") from None


def _refuse(what: str) -> Callable[[str], object]:
    def refuse(constant: str) -> object:
        raise ParseError(f"{what}: {constant} is not a number")

    return refuse


def json_object(text: str, what: str) -> dict[str, object]:
    """`text` as a JSON object without NaN or Infinity; ParseError where it is cut or not JSON."""
    try:
        data = json.loads(text, parse_constant=_refuse(what))
    except ValueError as e:
        raise ParseError(f"{what} is no whole JSON document: {e}") from None
    if not isinstance(data, dict):
        raise ParseError(f"{what} is no JSON object")
    return data
