"""The map of cables: which port of a node is to be in which port of which switch.

It is the variable `cables` of an inventory (group_vars/all), or a CSV with the same columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from toolkit.errors import UsageFault
from toolkit.inventory_lines import locate
from validation.model.base import explain
from validation.model.cables import Cable, plain_port, same_switch

VARIABLE = "cables"
COLUMNS = ("node", "port", "switch", "switch_port", "rail")
_CABLES = TypeAdapter(tuple[Cable, ...])


def site_cables(inventory: Path, host: str, given: Sequence[Any]) -> tuple[Cable, ...]:
    """The map of a site, whose hosts all have to have the same; `host`: one of them, by which its line is found."""
    place = f"{locate(inventory, host, (VARIABLE,)) or inventory}: {VARIABLE}"
    if any(other != given[0] for other in given):
        raise UsageFault(f"{place}: differs between hosts; a site has one map, so set it in group_vars/all")
    return check(given[0] or [], lambda index: f"{locate(inventory, host, (VARIABLE, index)) or inventory}: {VARIABLE}")


def check(given: Any, place: Callable[[int], str]) -> tuple[Cable, ...]:
    """Cables from data; UsageFault with the place of the entry that is wrong. No port may be in two of them.

    `place`: where an entry is, counted from 0.
    """
    try:
        cables = _CABLES.validate_python(given)
    except ValidationError as fault:
        path, words = explain(fault)
        index = path[0] if path and isinstance(path[0], int) else 0
        what = f": {'.'.join(map(str, path[1:]))}" if len(path) > 1 else ""
        raise UsageFault(f"{place(index)}, entry {index + 1}{what}: {words}") from None
    refuse_twins(cables, place)
    return cables


def refuse_twins(cables: Sequence[Cable], place: Callable[[int], str]) -> None:
    """UsageFault where a port of a node or of a switch has two cables."""
    nodes: dict[tuple[str, str], int] = {}
    switches: dict[str, list[int]] = {}
    for index, cable in enumerate(cables):
        first = nodes.setdefault((cable.node, cable.port), index)
        if first != index:
            words = f"{cable} is in two ports; one cable has one"
            raise UsageFault(f"{place(index)}, entries {first + 1} and {index + 1}: {words}")
        there = switches.setdefault(plain_port(cable.switch_port), [])
        first = next((other for other in there if same_switch(cables[other].switch, cable.switch)), index)
        there.append(index)
        if first != index:
            words = f"{cable.switch} {cable.switch_port} has two cables, of {cables[first]} and {cable}"
            raise UsageFault(f"{place(index)}, entries {first + 1} and {index + 1}: {words}")


def from_csv(file: Path) -> tuple[Cable, ...]:
    """The cables of a CSV with a header line; the column rail may be missing."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageFault(f"{file}: {getattr(fault, 'strerror', None) or 'not UTF-8 text'}") from None
    reader = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in text.partition("\n")[0] else ",")
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        rows = [(reader.line_num, row) for row in reader if not _empty(row)]
    except csv.Error as fault:
        raise UsageFault(f"{file}:{reader.line_num + 1}: {fault}") from None
    lacking = [name for name in COLUMNS[:4] if name not in names]
    if lacking:
        raise UsageFault(f"{file}:1: no column {', '.join(lacking)}; the first line is {','.join(COLUMNS)}")
    twice = [name for name in COLUMNS if names.count(name) > 1]
    if twice:
        raise UsageFault(f"{file}:1: column {', '.join(twice)} is there twice; leave one")
    if not rows:
        raise UsageFault(f"{file}:1: only a first line, and no cable")
    given = []
    for number, row in rows:
        if None in row or None in row.values():
            raise UsageFault(f"{file}:{number}: has another number of columns than the first line")
        cells = {name.strip(): value.strip() for name, value in row.items() if name.strip() in COLUMNS}
        given.append({name: value for name, value in cells.items() if value or name != "rail"})
    return check(given, lambda index: f"{file}:{rows[index][0]}")


def _empty(row: Mapping[str | None, str | list[str] | None]) -> bool:
    """Whether a row is only separators, as spreadsheets write below a table."""
    return all(isinstance(cell, str) and not cell.strip() for cell in row.values())


def as_yaml(cables: Iterable[Cable]) -> str:
    """The variable, as it is in an inventory: a line for each cable."""
    rows = [cable.model_dump(exclude_none=True) for cable in cables]
    if not rows:
        return f"{VARIABLE}: []\n"
    flow = (yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=1000).strip() for row in rows)
    return "".join([f"{VARIABLE}:\n", *(f"  - {row}\n" for row in flow)])
