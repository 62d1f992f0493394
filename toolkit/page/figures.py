"""What Prometheus of role monitoring knows beside Slurm: temperatures, alerts, use over a week, how the site is."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.page.prometheus import Silent, get, rows_of, samples
from toolkit.page.site import Topic, site_topics

WEEK = "7d"


@dataclass(frozen=True)
class Share:
    """Of a week: what one class of GPUs, or of users, had. gpu_hours: of 168 for each GPU; ratio: of the class's GPUs,
    None for users."""

    name: str
    gpu_hours: float
    ratio: float | None = None


@dataclass(frozen=True)
class Won:
    """What pooling wins. apart: GPUs that the users would need if each had the most that they held at one time in the
    week; pool: GPUs of the pool; busiest: the most that was held by all at one time."""

    apart: float
    pool: float
    busiest: float


@dataclass(frozen=True)
class Alert:
    """An alert that fires. since: seconds since the epoch, None where it is not known."""

    name: str
    severity: str
    summary: str
    since: float | None


@dataclass(frozen=True)
class Figures:
    """What is not known is None. temperatures: degrees Celsius by server and GPU."""

    temperatures: Mapping[tuple[str, int], float]
    alerts: tuple[Alert, ...] | None = None
    classes: tuple[Share, ...] | None = None
    users: tuple[Share, ...] | None = None
    won: Won | None = None
    topics: tuple[Topic, ...] | None = None


NONE = Figures({})

_HAD = 'sum by (account, user) (elastic_ai_pool_user_gpus{state="running"})'
_QUERIES = {
    "class_hours": f"sum by (class) (sum_over_time(elastic_ai_pool_leased_gpus[{WEEK}:5m])) / 12",
    "class_ratio": f"sum by (class) (sum_over_time(elastic_ai_pool_leased_gpus[{WEEK}:5m]))"
    f" / sum by (class) (sum_over_time(elastic_ai_pool_gpus[{WEEK}:5m]))",
    "user_hours": "sum by (account) (sum_over_time("
    f'(sum by (account) (elastic_ai_pool_user_gpus{{state="running"}}))[{WEEK}:5m])) / 12',
    "apart": f"sum(max_over_time(({_HAD})[{WEEK}:5m]))",
    "pool": "sum(elastic_ai_pool_gpus)",
    "busiest": f"max_over_time(sum(elastic_ai_pool_leased_gpus)[{WEEK}:5m])",
}


def _single(base: str, name: str) -> float | None:
    found = samples(base, _QUERIES[name])
    return found[0][1] if found else None


def now_figures(base: str) -> Figures:
    """Temperatures, alerts and how the site is. Blocks; what Prometheus does not give is unknown."""
    try:
        degrees = {}
        for labels, value in samples(base, "elastic_ai_gpu_temperature_celsius"):
            if re.fullmatch(r"[0-9]{1,4}", labels.get("gpu", "")):  # of a server, which may send anything
                degrees[labels.get("node", ""), int(labels["gpu"])] = value
        alerts = [_alert(row) for row in rows_of(get(base, "/api/v1/alerts").get("alerts"))]
        topics = site_topics(base, time.time())
        return Figures(degrees, tuple(alert for alert in alerts if alert is not None), topics=topics)
    except Silent:
        return NONE


def _alert(row: Mapping[str, Any]) -> Alert | None:
    labels, notes = row.get("labels"), row.get("annotations")
    if row.get("state") != "firing" or not isinstance(labels, dict) or not isinstance(notes, dict):
        return None
    name, severity, summary = (
        str(word or "") for word in (labels.get("alertname"), labels.get("severity"), notes.get("summary"))
    )
    return Alert(name, severity, summary, _seconds(row.get("activeAt")))


def _seconds(text: object) -> float | None:
    """Of a time as Prometheus writes it, in its own zone, to the nanosecond."""
    found = re.fullmatch(r"([0-9-]{10}T[0-9:]{8})(?:[.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})", str(text))
    if found is None:
        return None
    try:
        return datetime.datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def week_figures(base: str) -> tuple[tuple[Share, ...] | None, tuple[Share, ...] | None, Won | None]:
    """Use by class of GPUs, by class of users, and what pooling wins. Blocks."""
    try:
        ratios = {labels.get("class", ""): value for labels, value in samples(base, _QUERIES["class_ratio"])}
        classes = [
            Share(labels.get("class", "") or "?", hours, ratios.get(labels.get("class", "")))
            for labels, hours in samples(base, _QUERIES["class_hours"])
        ]
        users = [Share(labels.get("account", ""), hours) for labels, hours in samples(base, _QUERIES["user_hours"])]
        apart, pool, busiest = (_single(base, name) for name in ("apart", "pool", "busiest"))
    except Silent:
        return None, None, None
    won = None if apart is None or pool is None or busiest is None else Won(apart, pool, busiest)
    most = sorted(users, key=lambda share: (-share.gpu_hours, share.name))
    return tuple(sorted(classes, key=lambda share: share.name)), tuple(most), won
