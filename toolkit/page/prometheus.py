"""Questions to Prometheus of role monitoring, as the page asks them."""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

ANSWER_S = 10
MOST_BYTES = 16 << 20
GREATEST = 1e100
"""A value beyond it is nobody's figure: with the greatest that a float holds no axis can be drawn."""
Labels = dict[str, str]
Point = tuple[float, float]


class Silent(Exception):
    """Prometheus does not answer, or not what can be used."""


def get(base: str, path: str, **query: str) -> dict[str, Any]:
    """The data of an answer. Blocks. Silent where there is none that can be used."""
    url = f"{base.rstrip('/')}{path}?{urllib.parse.urlencode(query)}"
    try:
        with _DIRECT.open(url, timeout=ANSWER_S) as answer:
            found = json.loads(_whole(answer))
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as fault:
        raise Silent(str(fault)) from None
    if not isinstance(found, dict) or found.get("status") != "success" or not isinstance(found.get("data"), dict):
        raise Silent("Prometheus answers what cannot be used")
    return dict(found["data"])


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """What is answered within ANSWER_S, of one that comes slowly, too. Silent."""
    end, read = time.monotonic() + ANSWER_S, bytearray()
    while chunk := answer.read1(1 << 16):
        read += chunk
        if len(read) > MOST_BYTES:
            raise Silent("Prometheus answers more than can be shown")
        if time.monotonic() > end:
            raise Silent("Prometheus answers slowly")
    return bytes(read)


def rows_of(rows: object) -> Iterable[dict[str, Any]]:
    """The objects of a list of an answer; what is none is left out."""
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def samples(base: str, query: str) -> list[tuple[Labels, float]]:
    """What a query gives now: labels and value of each series, if it is a figure."""
    found = []
    for row in rows_of(get(base, "/api/v1/query", query=query).get("result")):
        point = _point(row.get("value"))
        if point is not None and isinstance(row.get("metric"), dict):
            found.append((_labels(row["metric"]), point[1]))
    return found


def courses(base: str, query: str, since: float, until: float, step_s: float) -> list[tuple[Labels, list[Point]]]:
    """What a query gave between two times: labels, and (seconds since the epoch, finite value), of each series."""
    found = []
    spans = {"start": f"{since:.0f}", "end": f"{until:.0f}", "step": f"{step_s:.0f}"}
    for row in rows_of(get(base, "/api/v1/query_range", query=query, **spans).get("result")):
        values, labels = row.get("values"), row.get("metric")
        if isinstance(values, list) and isinstance(labels, dict):
            found.append((_labels(labels), [point for value in values if (point := _point(value)) is not None]))
    return found


def _labels(found: dict[Any, Any]) -> Labels:
    return {str(key): str(value) for key, value in found.items()}


def _point(found: Any) -> Point | None:
    try:
        when, value = float(found[0]), float(found[1])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return None
    return (when, value) if math.isfinite(when) and abs(value) <= GREATEST else None
