"""`toolkit logs` and `toolkit attach`: what a program that goes on alone prints, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import endings, manage
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.kept import record
from toolkit.lease.kept.afterwards import outcome
from toolkit.lease.kept.output import Reader
from toolkit.lease.kept.record import Kept
from toolkit.lease.machine.host import Host
from validation.base.counting import number_of

LOOK_S = 0.2
TOO_FAST = "they were printed faster than they were read here"


def find(host: Host, lease: int) -> Kept:
    """The program of that lease. LeaseError that says where it is, or why there is none; nothing of another user's is
    looked for."""
    kept = record.of_lease(lease)
    if kept is not None:
        return kept
    here = record.this_machine()
    try:
        item = manage.find(host, lease)
    except LeaseError:
        raise LeaseError(
            f"lease {lease}: no program of yours goes on alone under it on {here}, and Slurm does not know it (any "
            "more); a program's output is on the machine where it was started"
        ) from None
    if item.jobs[0].user != manage.me():
        raise LeaseError(f"lease {lease} is another user's, and so is what it prints")
    try:
        started_on = JobComment.read(item.jobs[0].comment).host
    except LeaseError:
        started_on = here
    if started_on != here:
        raise LeaseError(f"lease {lease} was requested on {started_on}; its output is there: toolkit logs {lease}")
    raise LeaseError(f"lease {lease}: its program was not started by --detach, and prints where it was started")


@dataclass(frozen=True)
class End:
    """How it ended: its exit code, or RETRY where nobody knows it, and a sentence."""

    code: int
    words: str


def end_of(host: Host, kept: Kept) -> End | None:
    """None while it goes on."""
    if not kept.over:
        return None
    lease = kept.status.lease
    if kept.lost:
        return End(
            int(Exit.RETRY), f"lease {lease}: {kept.lost}{_lease_words(host, lease)}; its exit code is not known"
        )
    code = int(Exit.RETRY) if kept.status.code is None else kept.status.code
    return End(code, f"lease {lease}: {outcome(kept.status)}")


def _lease_words(host: Host, lease: int | None) -> str:
    """What Slurm says of the end, where it remembers."""
    over = None if lease is None else endings.cause_of(host, lease)
    return f" ({over.why})" if over is not None else ""


def show(
    host: Host,
    kept: Kept,
    write: Callable[[bytes], None],
    say: Callable[[str], None],
    follow: bool,
    last_lines: int | None = None,
) -> End | None:
    """Hand on what it prints; with `follow` until it has ended. How it ended, None while it goes on. say: for what is
    missing between two pieces. last_lines: how many of the lines are handed on that were printed before."""
    reader = Reader(kept.path)
    if last_lines is not None:
        write(reader.skip_to_last(last_lines))
    while True:
        found = record.read(kept.path)  # before what it printed is read, so that nothing of the end is left out
        for data in reader.read():
            if reader.missed:
                say(f"lease {kept.status.lease}: {number_of(reader.missed, 'byte')} were not kept: {TOO_FAST}")
                reader.missed = 0
            write(data)
        if found.over or not follow:
            return end_of(host, found)
        time.sleep(LOOK_S)


def beginning(kept: Kept) -> str:
    """What is missing at the beginning; "" where nothing is."""
    dropped = kept.status.dropped
    return (
        f"lease {kept.status.lease}: the first {number_of(dropped, 'byte')} of its output are not kept"
        if dropped
        else ""
    )
