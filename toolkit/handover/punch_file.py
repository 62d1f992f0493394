"""A site's punch list as a file that people edit too: what is written into it leaves their lines and comments alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path

import yaml

from toolkit import rundir
from toolkit.errors import UsageFault
from toolkit.inventory_site import refuse_no_site
from validation.base.yaml_text import child, parse_yaml, plain, yaml_tree
from validation.model.load import ConfigError, Source, read_source
from validation.rules.punch import Point, PunchFile, load_points
from validation.run.names import PUNCH

HEAD = """---
# What is left to do at this site: docs/how-to/punch-list.md. `toolkit validate` takes it into every run.
points:
"""
_INDENT = "  "


def file_of(inventory: Path) -> Path:
    """Where the punch list of an inventory is; InventoryError for what is none."""
    refuse_no_site(inventory)
    return beside(inventory)


def beside(inventory: Path) -> Path:
    """The same of an inventory that was read already."""
    return (inventory if inventory.is_dir() else inventory.parent) / PUNCH


def latest_day() -> date:
    """The last day that has come: a person writes the local one, a run that of UTC, and the later of both is right."""
    return max(datetime.now().astimezone().date(), datetime.now(timezone.utc).date())


def points_of(path: Path, criteria: Iterable[str], today: date | None = None) -> tuple[Point, ...]:
    """Of the file; none where there is no file. ConfigError with file and line."""
    return load_points(path, criteria, today) if os.path.lexists(path) else ()


def said(point: Point) -> dict[str, object]:
    """A point as the file has it."""
    found = point.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: date.fromisoformat(value) if key in ("due", "opened", "closed") else value
            for key, value in found.items()}  # fmt: skip


def write(path: Path, points: Sequence[Point]) -> None:
    """Have the file hold these points: those that it has, some of them changed, and new ones behind them.

    Lines of points that stay as they are, and comments, are not touched. UsageFault where the disk refuses.
    """
    before = read_source(path).text if path.exists() else HEAD
    wanted = {point.id: point for point in points}
    try:
        text = _in_lines(before, points)
        got = {p.id: p for p in PunchFile.model_validate(parse_yaml(text)).points}
    except (yaml.YAMLError, ValueError):
        got = {}
    if got != wanted:  # written in a form that lines cannot be put into, such as all on one line
        head = HEAD.replace("points:\n", "")
        more = [line for line in _comments(before) if line not in head.splitlines()]
        text = head + "".join(f"{line}\n" for line in more) + plain({"points": [said(point) for point in points]})
    rundir.write_text(path, text)


def _in_lines(text: str, points: Sequence[Point]) -> str:
    """The text with these points, line by line."""
    old = {point.id: point for point in load_points(Source(Path(PUNCH), text), _any(text))}
    for point in points:
        if point.id in old and old[point.id] != point:
            text = _changed(text, point, old[point.id])
    return _added(text, [point for point in points if point.id not in old])


def _scalars(node: yaml.Node | None, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    """Every key and value of a tree once; an alias is the node that it names."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for part in pair:
                yield from _scalars(part, seen)
    else:
        for part in node.value:
            yield from _scalars(part, seen)


def _comments(text: str) -> list[str]:
    """What people wrote beside the points, in its order: `# ...` that stands in no text."""
    inside = [(one.start_mark.index, one.end_mark.index) for one in _scalars(yaml_tree(text), set())]
    found, at = [], text.find("#")
    while at >= 0:
        end = next((last for first, last in inside if first <= at < last), None)
        if end is None and (at == 0 or text[at - 1].isspace()):
            line = text[at:].partition("\n")[0].rstrip()
            found.append(line)
            end = at + len(line)
        at = text.find("#", at + 1 if end is None else max(end, at + 1))
    return found


def _any(text: str) -> list[str]:
    """Every criterion that a text names: whether they exist is asked where the list is read for a run."""
    data = parse_yaml(text)
    listed = data.get("points") if isinstance(data, Mapping) else None
    return [str(one["criterion"]) for one in listed or [] if isinstance(one, Mapping) and one.get("criterion")]


def _changed(text: str, point: Point, before: Point) -> str:
    """With the keys of a point that are other now, behind its other lines or in their place."""
    listed = child(yaml_tree(text), "points")
    nodes = listed[0].value if listed and isinstance(listed[0], yaml.SequenceNode) else []
    node = next((n for n in nodes if (found := child(n, "id")) and found[0].value == point.id), None)
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return text
    now, was = said(point), said(before)
    lines = text.split("\n")
    column = node.value[0][0].start_mark.column
    new = {key: value for key, value in now.items() if was.get(key) != value}
    gone = [key for key in was if key not in now]
    for key, value in reversed(node.value):
        if key.value in new or key.value in gone:
            first, last = key.start_mark.line, value.end_mark.line
            lead = lines[first][: key.start_mark.column]
            last = max(last, first + 1) if value.end_mark.column == 0 else last + 1
            put = [lead + _key(key.value, new.pop(key.value))] if key.value in new else []
            lines[first:last] = put
    if new:
        end = _last_line(lines, node.value[0][0].start_mark.line, column)
        lines[end:end] = [" " * column + _key(key, value) for key, value in new.items()]
    return "\n".join(lines)


def _last_line(lines: Sequence[str], first: int, column: int) -> int:
    """The line behind the last one of a mapping that begins in line `first` at this column."""
    end = first + 1
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip()) < column:
            break
        if line.strip() and not line.lstrip().startswith("#"):
            end = number + 1
    return end


def _key(key: str, value: object) -> str:
    return plain({key: value}).rstrip("\n")


def _added(text: str, points: Sequence[Point]) -> str:
    if not points:
        return text
    text = re.sub(r"(?m)^points:[ \t]*\[[ \t]*\]", "points:", text)
    body, end, rest = text.partition("\n...")
    text, rest = (f"{body}\n", f"{end[1:]}{rest}") if end and not rest.strip() else (text, "")
    blocks, indent = [], _indent(text)
    for point in points:
        keys = [_key(key, value) for key, value in said(point).items()]
        blocks.append(f"{indent}- {keys[0]}\n" + "".join(f"{indent}  {line}\n" for line in keys[1:]))
    return (text if text.endswith("\n") else text + "\n") + "".join(blocks) + rest


def _indent(text: str) -> str:
    """Of the points that are there: a new one stands below them."""
    listed = child(yaml_tree(text), "points")
    found = listed[0] if listed else None
    block = isinstance(found, yaml.SequenceNode) and not found.flow_style and found.value
    return " " * found.start_mark.column if found is not None and block else _INDENT


def next_ids(points: Iterable[Point], prefix: str = "P") -> Iterable[str]:
    """P1, P2, ..., those that are not taken yet, in their order."""
    taken = {point.id.casefold() for point in points}
    number = 0
    while True:
        number += 1
        if f"{prefix}{number}".casefold() not in taken:
            yield f"{prefix}{number}"


def only(points: Sequence[Point], id_: str, path: Path) -> Point:
    """The point of this id; UsageFault where there is none."""
    found = next((point for point in points if point.id.casefold() == id_.casefold()), None)
    if found is None:
        known = ", ".join(point.id for point in points[:10]) or "no point"
        raise UsageFault(f"{path}: has no point {id_!r}; it has {known}")
    return found


__all__ = ["ConfigError", "beside", "file_of", "next_ids", "only", "points_of", "said", "write"]
