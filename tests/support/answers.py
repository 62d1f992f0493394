"""Answers of commands (--json), held against the schemas that docs/schema publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

FOLDER = Path(__file__).resolve().parents[2] / "docs/schema"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
MET: set[str] = set()
"""Names of the answers that were held against their schemas."""


@cache
def _validator(file: str) -> Any:
    schema = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check_document(file: str, value: Any) -> None:
    """Against documents/FILE of docs/schema."""
    _validator(f"documents/{file}").validate(value)


def check(stdout: str, name: str) -> dict[str, Any]:
    """stdout is exactly one object, the answer of that name, by its published schema; the object."""
    found = json.loads(stdout)
    assert isinstance(found, dict)
    assert next(iter(found)) == "schema"
    assert found["schema"] == f"elastic-ai/{name}/1"
    _validator(f"answers/{name}-1.json").validate(found)
    for path, value in _texts(found):
        assert value != "None", path
        assert not re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", value) or TIME.fullmatch(value), (path, value)
    MET.add(name)
    return found


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, f"{path}.{key}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _texts(one, f"{path}[{number}]")
