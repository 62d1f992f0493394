"""How the site is, as far as Prometheus on the head knows: the topics of `toolkit status` that need no ssh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from toolkit.page.prometheus import Labels, samples

State = Literal["ok", "note", "bad"]
SOON_DAYS = 30
"""As the alert CertificateEnds and `toolkit status` have it."""
MOST = 3
"""Names in a line; the others are counted."""
Found = Sequence[tuple[Labels, float]]


@dataclass(frozen=True)
class Topic:
    """A line: what was found, and how that is."""

    name: str
    state: State
    words: str


def site_topics(base: str, now: float) -> tuple[Topic, ...]:
    """All topics of which Prometheus has figures. Blocks. Silent where it does not answer."""
    made = (of(samples(base, query), now) for query, of in _TOPICS)
    return tuple(topic for topic in made if topic is not None)


def some(names: Sequence[str]) -> str:
    """`gpu1, gpu2, gpu3 and 4 more`."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{', '.join(names[:MOST])}{more}"


def _named(found: Found, label: str = "node") -> list[str]:
    return sorted({labels.get(label, "?") for labels, _ in found})


def _nodes(found: Found, _now: float) -> Topic | None:
    if not found:
        return None
    away = _named([one for one in found if one[1] == 0])
    if away:
        return Topic("nodes", "bad", f"{len(away)} of {len(found)} do not answer: {some(away)}")
    return Topic("nodes", "ok", f"all answer ({len(found)})")


def _counted(name: str, well: str, words: str) -> Callable[[Found, float], Topic | None]:
    """A topic of a count that is 0 on every node that is well. words: with {count} and {names}."""

    def of(found: Found, _now: float) -> Topic | None:
        if not found:
            return None
        off = [one for one in found if one[1] > 0]
        if not off:
            return Topic(name, "ok", well)
        return Topic(name, "bad", words.format(count=f"{sum(value for _, value in off):.0f}", names=some(_named(off))))

    return of


def _validation(found: Found, _now: float) -> Topic | None:
    if not found:
        return None
    off = [f"{labels.get('fabric', '?')}: {labels.get('outcome', '?')}" for labels, value in found if value != 1]
    if off:
        return Topic("validation", "bad", f"the newest did not pass over {some(sorted(off))}")
    return Topic("validation", "ok", f"the newest passed over {some(_named(found, 'fabric'))}")


def _validated(found: Found, now: float) -> Topic | None:
    if not found:
        return None
    return Topic("validated", "ok", f"last {_ago(now - max(when for _, when in found))}")


def _certificates(found: Found, _now: float) -> Topic | None:
    if not found:
        return None
    first, days = min(found, key=lambda one: one[1])
    whose = f"{first.get('certificate', '?')} on {first.get('node', '?')}"
    if days < 0:
        return Topic("certificates", "bad", f"that of {whose} has ended")
    state: State = "note" if days < SOON_DAYS else "ok"
    return Topic("certificates", state, f"the first ends in {days:.0f} days: {whose}")


def _backup(found: Found, now: float) -> Topic | None:
    if not found:
        return None
    labels, when = max(found, key=lambda one: one[1])
    if when <= 0:
        return Topic("backup", "bad", f"none on {labels.get('node', '?')}")
    return Topic("backup", "ok", f"the newest is of {_ago(now - when)}")


def _ago(seconds: float) -> str:
    hours = max(0.0, seconds / 3600)
    if hours < 1:
        return f"{hours * 60:.0f} min ago"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"


_TOPICS: tuple[tuple[str, Callable[[Found, float], Topic | None]], ...] = (
    ('up{job="node"}', _nodes),
    (
        "sum by (node) (elastic_ai_drift)",
        _counted("drift", "packages and files are as deployed", "{count} packages or files are others: {names}"),
    ),
    (
        "elastic_ai_units_failed",
        _counted("units", "no systemd unit has failed", "{count} systemd units have failed: {names}"),
    ),
    ("elastic_ai_reboot_waits", _counted("reboots", "none waits", "{count} reasons for a reboot wait: {names}")),
    (
        "1 - elastic_ai_pool_node_up",
        _counted("pool", "all servers take work", "{count} servers take no work: {names}"),
    ),
    ("elastic_ai_site_passed", _validation),
    ("elastic_ai_site_validated_timestamp_seconds", _validated),
    ("elastic_ai_certificate_days_left", _certificates),
    ("elastic_ai_backup_timestamp_seconds", _backup),
    (
        "elastic_ai_backup_unreadable",
        _counted("backups", "all can be read", "{count} backups cannot be read: {names}"),
    ),
    ("elastic_ai_rotation_open", _counted("rotations", "none is open", "{count} was begun and not finished: {names}")),
)
