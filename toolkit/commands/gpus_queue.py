"""What `toolkit gpus` shows beside the GPUs: the queue, when GPUs could be had, what a user may have."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.commands.lease_shared import duration_text, say
from toolkit.lease import LeaseError
from toolkit.lease.client.manage import me
from toolkit.lease.display import clock, several, table
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.machine.host import Host
from toolkit.lease.queue.limits import Limits, enforced, limits
from toolkit.lease.queue.start import Start, start_of
from toolkit.lease.queue.waiting_list import Waiting

DAYS, MOST_DAYS = 7, 366
#: Requests that a table shows; more are counted.
SHOWN = 20
QUEUE_TITLES = ("PLACE", "USER", "WAITS FOR", "CLASS", "SINCE", "EXPECTED", "WHY")


@dataclass(frozen=True)
class View:
    """What `toolkit gpus` is asked to show; the fields are the command's options. LeaseError by `checked`."""

    wish: LeaseWish
    inventory: Path | None = None
    when: bool = False
    own_limits: bool = False
    watch: bool = False
    dates: bool = False
    days: int = DAYS
    as_json: bool = False

    @classmethod
    def checked(cls, **options: Any) -> View:
        """The view that a command's options are. LeaseError where they contradict each other."""
        view = cls(wish=LeaseWish.taken_from(options), **options)
        views = {
            "--when": view.when,
            "--limits": view.own_limits,
            "--watch": view.watch,
            "--calendar": view.dates,
        }
        chosen = [word for word, given in views.items() if given]
        if len(chosen) > 1:
            raise LeaseError(f"{' and '.join(chosen)}: give one of them")
        if view.watch and view.as_json:
            raise LeaseError("--watch prints text again and again; omit --json, or ask for it in a loop of your own")
        if view.wish != LeaseWish() and not view.when:
            raise LeaseError(
                "-n, -p, -m, -l, --apart, --class, --engine and --time go with --when: when could I have them?"
            )
        if not 1 <= view.days <= MOST_DAYS:
            raise LeaseError(f"--days {view.days}: give 1 to {MOST_DAYS}")
        if view.days != DAYS and not view.dates:
            raise LeaseError("--days goes with --calendar")
        view.wish.check()
        return view

    def words(self) -> list[str]:
        """The same command, for the head."""
        wish = self.wish
        found = ["gpus"]
        found += ["--calendar", "--days", str(self.days)] if self.dates else []
        found += [word for word, given in (("--limits", self.own_limits), ("--watch", self.watch)) if given]
        if self.when:
            found += ["--when", "--gpus", str(wish.count)]
            pairs = {"--part": wish.part, "--memory": wish.memory_mib, "--servers": wish.servers}
            pairs |= {"--class": wish.gpu_class, "--engine": wish.engine, "--up-to": wish.up_to}
            for option, value in pairs.items():
                found += [option, str(value)] if value else []
            found += ["--apart"] if wish.apart else []
            found += ["--time", f"{wish.seconds}s"] if wish.seconds is not None else []
        return [*found, *(["--json"] if self.as_json else [])]


def clear() -> None:
    """A new page, on a terminal; elsewhere an empty line between two."""
    click.echo("\x1b[H\x1b[2J" if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())


def queue_table(queue: list[Waiting]) -> str:
    """The queue, for people."""
    rows = [
        [
            str(one.place),
            one.user,
            one.what or "a job",
            one.gpu_class,
            clock(one.since) if one.since is not None else "?",
            clock(one.expected) if one.expected is not None else "not known",
            one.why,
        ]
        for one in queue[:SHOWN]
    ]
    more = f"\n… and {several(len(queue) - SHOWN, 'request')} more" if len(queue) > SHOWN else ""
    return table(QUEUE_TITLES, rows) + more


def _start_text(start: Start) -> str:
    found, now = start.outlook, start.asked
    where = f", on {', '.join(found.servers)}" if found.servers else ""
    if found.at is None:
        return f"{start.what}: not known: they are in use without an end; toolkit gpus shows by whom"
    if found.at <= now:
        ahead = f"; {several(start.waiting, 'request')} may go first" if start.waiting else ""
        return f"{start.what}: now{where}{ahead}"
    ends = ", ".join(map(str, found.waits_for))
    after = f", after {'lease' if len(found.waits_for) == 1 else 'leases'} {ends}" if ends else ""
    ahead = f"; {several(start.waiting, 'request')} may go first" if start.waiting else ""
    return f"{start.what}: {clock(found.at, now)}{where}{after}, or earlier if they end before their time{ahead}"


def show_start(host: Host, wish: LeaseWish, as_json: bool) -> None:
    """When the wish could be met."""
    start = start_of(host, wish, say)
    if not as_json:
        click.echo(_start_text(start))
        return
    found = start.outlook
    answers.say(
        "gpus-when",
        {
            "what": start.what,
            "start": answers.when(found.at),
            "now": found.at is not None and found.at <= start.asked,
            "servers": list(found.servers),
            "after": list(found.waits_for),
            "waiting": start.waiting,
        },
    )


def _gpus(number: Fraction | None) -> str:
    return "no limit" if number is None else f"{float(number):.3g}"


def _limit_lines(one: Limits) -> list[str]:
    longest = "no limit" if one.longest_s is None else duration_text(one.longest_s)
    classes = [
        c.name if c.longest_s is None else f"{c.name} (at most {duration_text(c.longest_s)})" for c in one.classes
    ]
    jobs = f"{one.jobs_now} of {one.jobs}" if one.jobs is not None else f"{one.jobs_now}, no limit"
    return [
        f"{one.name}{' (yours if you name none)' if one.default else f' (SBATCH_ACCOUNT={one.name})'}",
        f"  GPUs at a time       {_gpus(one.gpus)}, you have {_gpus(one.used)}",
        f"  all of {one.name[:13].ljust(13)} {_gpus(one.together)}, in use {_gpus(one.used_together)}",
        f"  classes of GPU       {', '.join(classes) or 'none'}",
        f"  longest lease        {longest}",
        f"  waiting or running   {jobs}",
        f"  priority             {one.priority}"
        + (f"; may take GPUs back from {', '.join(one.preempts)}" if one.preempts else ""),
    ]


def _limit_data(one: Limits) -> dict[str, Any]:
    numbers = ("gpus", "used", "together", "used_together")
    found = {**asdict(one)}
    return found | {key: None if found[key] is None else float(found[key]) for key in numbers}


def show_limits(host: Host, as_json: bool) -> None:
    """What the caller may have."""
    user = me()
    nodes, jobs = host.slurm.nodes(), host.slurm.jobs()
    classed = enforced(host)
    found = limits(host, user, nodes, jobs) if classed else []
    if as_json:
        answers.say("gpus-limits", {"user": user, "limited": classed, "classes": [_limit_data(one) for one in found]})
    elif not classed or user == "root":
        click.echo(f"{user}: no limits; the pool has no classes of users" if not classed else "root: no limits")
    elif not found:
        raise LeaseError(f"{user} is in no class of users of this pool and gets no GPU; ask its administrator")
    else:
        click.echo("\n".join(line for one in found for line in _limit_lines(one)))
