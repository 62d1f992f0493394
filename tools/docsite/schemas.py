"""Reference page of the documents that commands write: each JSON Schema of docs/schema, its keys and their meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.docsite.markdown import code, escaped, page, table

FOLDER = "schema"


def _type(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if isinstance(schema.get("items"), dict) else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def keys(schema: dict[str, Any]) -> str:
    """The keys of an object as a table."""
    required = schema.get("required", [])
    rows = [
        (
            code(name),
            _type(each),
            "" if name in required else "no",
            escaped(" ".join(each.get("description", "").split())),
        )
        for name, each in schema.get("properties", {}).items()
    ]
    if not any(row[3] for row in rows):
        return table(("Key", "Type", "Always there"), [row[:3] for row in rows])
    return table(("Key", "Type", "Always there", "Meaning"), rows)


def pages(schemas: Path) -> dict[str, str]:
    """Path -> text, of the folder with the schemas."""
    parts = [
        "Every answer of `--json` and every document of a run that others read has a JSON Schema (draft 2020-12). The "
        "file is the reference; this page lists its keys. The schema's name is the first key of the "
        "document. Times are RFC 3339 in UTC.",
    ]
    for path in sorted(schemas.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        parts.append(f"## {path.stem} {{ #{path.stem} }}")
        parts.append(escaped(" ".join(schema.get("description", schema.get("title", "")).split())))
        parts.append(f"File: [{path.name}](../{FOLDER}/{path.name})")
        parts.append(keys(schema))
        for name, inside in schema.get("$defs", {}).items():
            if inside.get("type") == "object" and inside.get("properties"):
                parts.append(f"### {name} {{ #{path.stem}-{name} }}")
                parts.append(escaped(" ".join(inside.get("description", "").split())))
                parts.append(keys(inside))
    return {"reference/documents.md": page("Documents", *parts)}
