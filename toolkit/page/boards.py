"""Dashboards of role monitoring as the page knows them: the same files, queries and units as Grafana would have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

TITLES = {"pool": "Pool", "fabric": "Fabric", "gpus": "GPUs", "servers": "Servers", "node": "A node", "user": "My use"}
"""Dashboards by the name of their file, in the order in which they are offered."""
CHOSEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""A name of a node or user that may stand in a query."""


@dataclass(frozen=True)
class Query:
    """legend: the name of a series, with {{label}} for what its labels have."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """kind: a course over time, the figure of now, or a table of now's series. unit: Grafana's word."""

    title: str
    kind: Literal["course", "figure", "table"]
    unit: str
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Board:
    """chosen: the label of which the reader takes a value, "" where there is none."""

    name: str
    title: str
    chosen: str
    panels: tuple[Panel, ...]


_KINDS: dict[str, Literal["course", "figure", "table"]] = {
    "timeseries": "course", "stat": "figure", "gauge": "figure", "table": "table",
}  # fmt: skip


def read_boards(folder: Path) -> dict[str, Board]:
    """Those of the folder that can be read, by name and in the order of TITLES; none where monitoring is not there."""
    return {name: board for name in TITLES if (board := _board(name, folder / f"{name}.json")) is not None}


def _board(name: str, path: Path) -> Board | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        choices = [str(one["name"]) for one in found.get("templating", {}).get("list", [])]
        return Board(name, TITLES[name], choices[0] if choices else "", tuple(_panels(found)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _panels(found: dict[str, Any]) -> Iterable[Panel]:
    for panel in found["panels"]:
        kind = _KINDS.get(panel["type"])
        if kind is not None:
            queries = tuple(Query(str(one["expr"]), str(one.get("legendFormat", ""))) for one in panel["targets"])
            unit = str(panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short"))
            yield Panel(str(panel["title"]), kind, unit, queries)


def chosen_in(query: Query, label: str, value: str) -> str:
    """The query's expression with the reader's choice. `value` matches CHOSEN."""
    return query.expression.replace(f"${label}", value) if label else query.expression


def named(legend: str, labels: dict[str, str]) -> str:
    """The name of a series."""
    if not legend:
        return " ".join(f"{key} {value}" for key, value in sorted(labels.items()) if key != "__name__")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend).strip()


_SCALED = {"bps": "bit/s", "Bps": "B/s", "bytes": "B"}
_PLAIN = {"celsius": " °C", "watt": " W", "pps": "/s", "h": " h"}


def figure(value: float, unit: str) -> str:
    """A value with its unit, in three digits."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        return _duration(value)
    if unit in _SCALED:
        for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {prefix}{_SCALED[unit]}"
        return f"{value:.3g} {_SCALED[unit]}"
    return f"{_short(value)}{_PLAIN.get(unit, '')}"


def _short(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}"


def _duration(seconds: float) -> str:
    for factor, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {word}"
    return f"{_short(seconds)} s"
