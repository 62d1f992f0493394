"""Reference pages of what commands write: each JSON Schema of docs/schema, its keys and their meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.docsite.markdown import code, escaped, page, table

Schema = Mapping[str, Any]
#: page -> title, folders of docs/schema, words. Tests find a folder that is missing here.
PAGES = {
    "answer-keys": (
        "Keys of the answers",
        ("answers",),
        "What each [answer of `--json`](answers.md) holds. The schema file is the reference; this page lists its keys.",
    ),
    "documents": (
        "Documents of a run",
        ("", "documents"),
        "The files of a run directory, and report.json, which others may read. The schema file (JSON Schema, draft "
        "2020-12) is the reference; this page lists the keys.",
    ),
}


def _type(schema: Schema, anchors: Mapping[str, str]) -> str:
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchors[name]})" if name in anchors else name
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each, anchors) for each in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        inside = schema.get("items")
        return f"list of {_type(inside, anchors)}" if isinstance(inside, dict) else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'], anchors)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _words(schema: Schema) -> str:
    return escaped(" ".join(schema.get("description", "").split()))


def keys(schema: Schema, anchors: Mapping[str, str]) -> str:
    """The keys of an object as a table."""
    required = schema.get("required", [])
    rows = [
        (code(name), _type(each, anchors), "yes" if name in required else "no", _words(each))
        for name, each in schema.get("properties", {}).items()
    ]
    width = 4 if any(row[3] for row in rows) else 3
    return table(("Key", "Type", "Always there", "Meaning")[:width], [row[:width] for row in rows])


class _Parts:
    """The parts ($defs) of several schemas, each once; two of one name that differ are told apart by their schema."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}

    def anchors(self, stem: str, schema: Schema) -> dict[str, str]:
        """Name of each part of a schema -> its anchor."""
        anchors = {}
        for name, part in schema.get("$defs", {}).items():
            anchor = name if self.found.get(name, part) == part else f"{stem}-{name}"
            self.found[anchor] = part
            anchors[name] = anchor
        return anchors


def _page(title: str, words: str, files: Iterable[Path], folder: Path) -> str:
    parts, sections = _Parts(), [words]
    tables: dict[str, str] = {}
    for path in files:
        schema = json.loads(path.read_text(encoding="utf-8"))
        anchors = parts.anchors(path.stem, schema)
        sections.append(f"## {path.stem} {{ #{path.stem} }}")
        sections.append(_words(schema))
        sections.append(f"Schema: [{path.name}](../schema/{path.relative_to(folder)})")
        sections.append(keys(schema, anchors))
        for name, anchor in anchors.items():
            tables.setdefault(anchor, _part(name, anchor, schema["$defs"][name], anchors))
    if tables:
        sections += ["## Parts", *(tables[anchor] for anchor in sorted(tables))]
    return page(title, *sections)


def _part(name: str, anchor: str, schema: Schema, anchors: Mapping[str, str]) -> str:
    body = keys(schema, anchors) or f"{_type(schema, anchors)}\n"
    words = _words(schema)
    return f"### {name} {{ #{anchor} }}\n\n" + (f"{words}\n\n" if words else "") + body


def pages(schemas: Path) -> dict[str, str]:
    """Path -> text, of the folder with the schemas."""
    made = {}
    for name, (title, folders, words) in PAGES.items():
        files = [path for folder in folders for path in sorted((schemas / folder).glob("*.json"))]
        made[f"reference/{name}.md"] = _page(title, words, files, schemas)
    return made
