"""What a look at a site comes to: a line for each topic, with what is wrong and what to do about it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from toolkit.exits import Exit
from toolkit.node.checks import short
from toolkit.status.looked import KeptHere, Looked, NodeSaid, PoolSaid
from toolkit.verdict_lines import state_words
from validation.base.counting import number_of
from validation.signing.last_day import day_of

State = Literal["ok", "note", "bad", "unknown"]
SOON_DAYS = 30
"""From which on an end of a certificate or paper is told. Project default, as the alert CertificateEnds has it."""
FULL = 0.1
"""Free share of a disk below which that is told. Project default, as the alert DiskFull has it."""
MOST = 3
"""Of what is named in a line; the others are counted."""


@dataclass(frozen=True)
class Line:
    """A topic. `words`: what was found; `do`: what to do, "" where nothing is; `about`: single things behind it."""

    topic: str
    state: State
    words: str
    do: str = ""
    about: tuple[str, ...] = ()


def exit_of(lines: Iterable[Line]) -> Exit:
    """FAILED where something is bad, INCOMPLETE where something is not known."""
    states = {line.state for line in lines}
    return Exit.FAILED if "bad" in states else Exit.INCOMPLETE if "unknown" in states else Exit.OK


def some(names: Sequence[str]) -> str:
    """`gpu1, gpu2, gpu3 and 4 more`."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{', '.join(names[:MOST])}{more}"


def ago(then: datetime, now: datetime) -> str:
    """`3 h ago`, `12 days ago`."""
    hours = max(0.0, (now - then).total_seconds() / 3600)
    if hours < 1:
        return f"{hours * 60:.0f} min ago"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"


def lines(seen: Looked) -> list[Line]:
    """All topics that this site has, always in the same order."""
    topics: tuple[Callable[[Looked], Line | None], ...] = (
        _nodes, _release, _drift, _machines, _deployed, _pool, _work, _validated, _paper, _points, _alerts,
        _notified, _certificates, _backups, _begun,
    )  # fmt: skip
    return [line for topic in topics if (line := topic(seen)) is not None]


def _answered(seen: Looked) -> dict[str, NodeSaid]:
    return {name: said for name, said in seen.nodes.items() if isinstance(said, NodeSaid)}


def _nodes(seen: Looked) -> Line:
    silent = {name: said for name, said in seen.nodes.items() if isinstance(said, str)}
    count = number_of(len(seen.nodes), "node")
    if not silent:
        return Line("nodes", "ok", f"all answer ({count})")
    about = tuple(f"{name}: {why}" for name, why in silent.items())
    do = "look at the machine or its BMC; what it has is not known here"
    return Line("nodes", "bad", f"{len(silent)} of {count} do not answer: {some(list(silent))}", do, about)


def _release(seen: Looked) -> Line | None:
    said = _answered(seen)
    if not said:
        return None
    bare = [name for name, one in said.items() if not one.recorded]
    if bare:
        about = tuple(f"{name}: no record of a deployment" for name in bare)
        return Line("release", "bad", f"not deployed: {some(bare)}", "toolkit deploy", about)
    other = {n: one.release for n, one in said.items() if n in seen.wanted and one.release != seen.wanted[n]}
    counts = Counter(one.release or "without a name" for one in said.values())
    words = ", ".join(f"{release} on {count}" for release, count in sorted(counts.items()))
    if other:
        about = tuple(f"{name}: {release}, the inventory has {seen.wanted[name]}" for name, release in other.items())
        do = "toolkit upgrade --to RELEASE, or correct stack_release in the inventory"
        return Line("release", "bad", f"{words}; other than in the inventory: {some(list(other))}", do, about)
    state: State = "ok" if len(counts) == 1 else "note"
    return Line("release", state, words)


def _drift(seen: Looked) -> Line | None:
    said = {name: one for name, one in _answered(seen).items() if one.recorded}
    if not said:
        return None
    about, changed, unread = [], [], []
    for name, one in said.items():
        found = [*one.packages.odd, *one.files.odd]
        about += [f"{name}: {words}" for words in found]
        more = one.packages.more + one.files.more
        about += [f"{name}: and {more} more"] if more else []
        changed += [name] if found else []
        unread += [name] if not one.packages.read else []
    kept = sum(one.packages.of + one.files.of for one in said.values())
    if changed:
        count = sum(one.packages.count + one.files.count for one in said.values())
        words = f"{count} of {kept} pinned packages and written files are others: {some(changed)}"
        return Line("drift", "bad", words, "toolkit check says what that breaks; toolkit deploy mends it", tuple(about))
    if unread:
        return Line("drift", "unknown", f"the package manager of {some(unread)} does not answer", "toolkit check")
    return Line("drift", "ok", f"{kept} pinned packages and written files are as deployed")


def _machines(seen: Looked) -> Line | None:
    said = _answered(seen)
    if not said:
        return None
    about = [f"{name}: a reboot waits ({', '.join(one.waits)})" for name, one in said.items() if one.waits]
    about += [f"{name}: failed units: {', '.join(one.failed_units)}" for name, one in said.items() if one.failed_units]
    about += [f"{name}: {one.free:.0%} of / is free" for name, one in said.items() if one.free < FULL]
    mute = [name for name, one in said.items() if one.failed_units is None]
    if about:
        names = list(dict.fromkeys(line.partition(":")[0] for line in about))
        do = "see below; a reboot that waits: toolkit deploy -- -e reboot=if_needed"
        return Line("machines", "bad", f"{number_of(len(about), 'trouble')} on {some(names)}", do, tuple(about))
    if mute:
        return Line("machines", "unknown", f"systemd of {some(mute)} does not answer", "toolkit check")
    return Line("machines", "ok", "no failed unit, no reboot waits, disks have room")


def _deployed(seen: Looked) -> Line | None:
    done = seen.here.deployed
    if done is None:
        return Line("deployment", "note", "none from this machine")
    when = ago(datetime.fromisoformat(done.ended), seen.when)
    bad = [f"{one.node}: {one.outcome}{f', {one.failure}' if one.failure else ''}" for one in done.nodes
           if one.outcome != "ok"]  # fmt: skip
    if bad or done.interrupted or not done.finished:
        words = "was interrupted" if done.interrupted else "did not come to its end on every node"
        return Line("deployment", "bad", f"the last one, {when}, {words}", "toolkit deploy", tuple(bad))
    return Line("deployment", "ok", f"{when}, {number_of(len(done.nodes), 'node')}, by {done.who}")


def _pool(seen: Looked) -> Line | None:
    said = seen.pool
    if said is None:
        return None
    if isinstance(said, str):
        silent = isinstance(seen.on_head, str)
        do = "see nodes: it has to answer first" if silent else f"systemctl status slurmctld on {seen.head}"
        return Line("pool", "bad", said, do)
    mine = {short(name) for name in seen.servers}
    nodes = [node for node in said.nodes if node.name in mine]
    gone = sorted(mine - {node.name for node in nodes})
    about = [f"{name}: is not in the pool" for name in gone]
    about += [f"{one.name}: {one.state.lower()}{f': {one.reason}' if one.reason else ''}" for one in nodes
              if not one.serves]  # fmt: skip
    if about:
        names = [line.partition(":")[0] for line in about]
        words = f"{len(about)} of {number_of(len(mine), 'server')} without work: {some(names)}"
        return Line("pool", "bad", words, "toolkit incidents, or scontrol update ... state=resume", tuple(about))
    return Line(
        "pool", "ok", f"{number_of(len(nodes), 'server')}, {sum(one.gpus for one in nodes)} GPUs, all take work"
    )


def _work(seen: Looked) -> Line | None:
    if not isinstance(seen.pool, PoolSaid):
        return None
    waiting = f", {seen.pool.waiting} wait" if seen.pool.waiting else ", none waits"
    return Line("leases", "ok", f"{number_of(seen.pool.leases, 'lease')}{waiting}")


def _validated(seen: Looked) -> Line:
    row = seen.here.run
    if row is None or row.created is None:
        return Line("validation", "note", "no judged run of this site here", "toolkit validate, or name --runs-dir")
    words = f"{row.run}, {ago(datetime.fromisoformat(row.created), seen.when)}: {row.said}"
    if row.outcome != "passed":
        return Line("validation", "bad", words, f"toolkit report {row.run}")
    return Line("validation", "ok", words)


def _paper(seen: Looked) -> Line:
    paper = seen.here.paper
    if paper is None:
        return Line("paper", "note", "no signed run of this site here", "toolkit sign")
    words = f"{paper.run}, {state_words(paper.sign_off, paper.outcome)}, signed by {paper.name}"
    last = day_of(paper.last_day)
    if last is None:
        return Line("paper", "note", f"{words}, names no last day")
    left = (last - seen.when.date()).days
    again = "validate the site again, and sign that run"
    if left < 0:
        return Line("paper", "bad", f"{words}; EXPIRED on {last}", again)
    said = f"{words}, holds until {last} (toolkit check says what ends it before)"
    return Line("paper", "note" if left < SOON_DAYS else "ok", said, again if left < SOON_DAYS else "")


def _points(seen: Looked) -> Line | None:
    points = seen.here.points
    if isinstance(points, str):
        return Line("punch list", "unknown", points, "correct punch.yml")
    left = [point for point in points if point.open]
    if not points:
        return None
    blocking = [point.id for point in left if point.blocking]
    late = [point.id for point in left if seen.when.date() > point.due]
    about = tuple(f"{point.id}: {point.text} ({point.owner}, until {point.due})" for point in left)
    marks = [f"blocking: {some(blocking)}"] if blocking else []
    marks += [f"late: {some(late)}"] if late else []
    words = "; ".join([f"{number_of(len(left), 'point')} open", *marks])
    state: State = "bad" if blocking or late else "note" if left else "ok"
    return Line("punch list", state, words, "toolkit handover points" if left else "", about)


def _alerts(seen: Looked) -> Line | None:
    said = seen.on_head
    if not isinstance(said, NodeSaid) or said.alerts is None:
        return None
    if isinstance(said.alerts, str):
        return Line("alerts", "unknown", said.alerts, f"systemctl status prometheus on {seen.head}")
    if not said.alerts:
        return Line("alerts", "ok", "none fires")
    about = tuple(
        f"{one.name}{f' on {one.where}' if one.where else ''} ({one.severity}): {one.words}" for one in said.alerts
    )
    counts = Counter(one.name for one in said.alerts)
    names = [f"{name} ({count})" if count > 1 else name for name, count in counts.most_common()]
    only_info = all(one.severity == "info" for one in said.alerts)
    return Line("alerts", "note" if only_info else "bad", f"{len(said.alerts)} fire: {some(names)}", "", about)


FAILING = ("NotificationsFail", "AlertmanagerDown")
"""Alerts that say that alerts do not arrive."""


def _notified(seen: Looked) -> Line | None:
    head = seen.on_head
    said = head.notifications if isinstance(head, NodeSaid) else None
    if said is None or not isinstance(head, NodeSaid):
        return None
    if said.fault:
        return Line("notifications", "bad", said.fault, f"systemctl status prometheus-alertmanager on {seen.head}")
    fires = head.alerts if isinstance(head.alerts, tuple) else ()
    about = tuple(one.words for one in fires if one.name in FAILING)
    if about:
        return Line("notifications", "bad", "alerts do not arrive", f"journalctl on {seen.head}, see below", about)
    others = f"the site's Alertmanager ({some(said.site)})" if said.site else ""
    if said.told is None:
        if others:
            return Line("notifications", "ok", f"by {others}")
        do = "monitoring_mail or monitoring_webhooks in the inventory, then toolkit deploy"
        return Line("notifications", "note", "nobody is notified of alerts: no receiver is named", do)
    words = f"{number_of(said.receivers, 'receiver')}{f' and {others}' if others else ''}"
    words += f"; {number_of(said.told, 'alert')} notified" if said.told else ""
    words += f", {said.follow} left out because {'it follows' if said.follow == 1 else 'they follow'}" * bool(
        said.follow
    )
    if said.silenced:
        do = f"amtool silence query on {seen.head}"
        return Line("notifications", "note", f"{words}; {number_of(said.silenced, 'alert')} silenced by somebody", do)
    return Line("notifications", "ok", words)


def _certificates(seen: Looked) -> Line | None:
    said = seen.on_head
    if not isinstance(said, NodeSaid) or not said.certificates:
        return None
    unread = [name for name, days in said.certificates.items() if days is None]
    days = {name: left for name, left in said.certificates.items() if left is not None}
    soon = sorted((left, name) for name, left in days.items() if left < SOON_DAYS)
    if soon:
        about = tuple(f"{name}: {_left(left)}" for left, name in soon)
        do = "toolkit rotate registry; that of the page: docs/how-to/pool-page.md"
        return Line("certificates", "bad", f"{some([name for _, name in soon])}: {_left(soon[0][0])}", do, about)
    if unread:
        return Line("certificates", "unknown", f"cannot be read: {some(unread)}", f"openssl x509 on {seen.head}")
    least, name = min((left, name) for name, left in days.items())
    return Line("certificates", "ok", f"the first to end is that of {name}, in {least:.0f} days")


def _left(days: float) -> str:
    return f"ended {-days:.0f} days ago" if days < 0 else f"ends in {days:.0f} days"


def _backups(seen: Looked) -> Line | None:
    said = seen.on_head
    if not isinstance(said, NodeSaid):
        return None
    if said.backup is None:
        if seen.pool is None:
            return None
        return Line("backup", "note", "the head makes none", "docs/how-to/head.md")
    at, unreadable = said.backup.get("timestamp_seconds"), said.backup.get("unreadable", 0)
    if at is None:
        return Line("backup", "unknown", "the head has no figures of its backups", "toolkit backup")
    if unreadable:
        return Line("backup", "bad", f"{unreadable:.0f} cannot be read", "toolkit backup names them")
    age_s = seen.when.timestamp() - at
    if age_s > said.backup.get("overdue_seconds", float("inf")):
        return Line("backup", "bad", f"the newest is of {age_s / 3600:.0f} h ago, which is overdue", "toolkit backup")
    return Line("backup", "ok", f"the newest is of {age_s / 3600:.1f} h ago, and can be read")


def _begun(seen: Looked) -> Line | None:
    here: KeptHere = seen.here
    head = seen.on_head if isinstance(seen.on_head, NodeSaid) else None
    about = [f"upgrade: {here.upgrade}"] if here.upgrade else []
    if isinstance(here.incidents, str):
        about.append(f"incidents: {here.incidents}")
    else:
        about += [f"incident of {one.node}, since {one.began}, in step {one.step}: {one.why or one.faults[0].words}"
                  for one in here.incidents]  # fmt: skip
    about += [f"rotation of {name}: toolkit rotate ends it" for name in (head.rotations if head else ())]
    if not about:
        return None
    return Line("unfinished", "bad", f"{len(about)} begun and not finished", "run the same command again", tuple(about))
