"""What commands answer with --json: always one object on stdout, whose first key says by which schema it is written.

The schemas are declared in toolkit/answer_forms.py and published in docs/schema. Errors are no answers: they are a line
on stderr and an exit code. Standard library and click only: machines of the pool import it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


_NO_TEXT = re.compile("[\ud800-\udfff]")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")


def schema_of(name: str) -> str:
    """Of an answer, as its first key says it. A key may be added within version 1, and none changes its meaning."""
    return f"elastic-ai/{name}/1"


def text(name: str, fields: Mapping[str, Any]) -> str:
    """The answer as it is printed."""
    mine = {"schema": schema_of(name)}
    said = {**mine, **_plain(fields), **mine}
    return json.dumps(said, indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value as every reader of JSON takes it: each time in one form, in UTC and with a Z; a path as its text; a
    number that is none as null; a byte of a name that is no UTF-8, which a strict reader refuses, as `\\xff`.
    """
    if isinstance(value, str):
        text = value if value.isascii() else _NO_TEXT.sub(_written, value)
        return f"{text[:-6]}Z" if _TIME.fullmatch(text) else text
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return _plain(str(value)) if isinstance(value, os.PathLike) else value


def _written(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def say(name: str, fields: Mapping[str, Any]) -> None:
    """Print the answer."""
    click.echo(text(name, fields))


def when(epoch_s: float | None) -> str | None:
    """A time as answers have it, in UTC: 2026-11-26T04:00:00Z; None where there is none."""
    if epoch_s is None:
        return None
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
