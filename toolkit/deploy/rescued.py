"""Tasks whose failure a `rescue` takes up: what went wrong there is said by the rescue, or is no fault in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validation.base.yaml_text import parse_yaml


def rescued_tasks(roles: Path) -> frozenset[tuple[str, str]]:
    """(role, task) of all tasks within a block with a rescue; read from the roles' files of tasks."""
    found: set[tuple[str, str]] = set()
    for path in sorted(roles.glob("*/tasks/*.yml")):
        text = path.read_text(encoding="utf-8")
        if "rescue:" in text:
            found |= {(path.parents[1].name, name) for name in _names(parse_yaml(text), inside=False)}
    return frozenset(found)


def _names(tasks: Any, inside: bool) -> Iterator[str]:
    for task in tasks or []:
        if "block" in task:
            yield from _names(task["block"], inside or "rescue" in task)
            yield from _names(task.get("rescue"), inside)
            yield from _names(task.get("always"), inside)
        elif inside:
            yield str(task.get("name", ""))
