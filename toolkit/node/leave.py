"""A node leaves: no new work, what runs is waited for, and then it goes from the machine, the inventory and Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory import read_site
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.pool import is_lease
from toolkit.node import checks, playbooks
from toolkit.node.drain import DrainReason
from toolkit.node.head import Head, answers
from toolkit.node.listed import listing
from toolkit.node.state import Kept
from validation.base.counting import number_of

PAUSE_S = 2.0
TOLD_EACH_S = 60.0
Say = Callable[[str], None]


def remove(name: str, inventory: Path, grace_s: int | None, without_teardown: bool, say: Say) -> None:
    """All of it, from where an earlier command left off."""
    topology, kept = read_site(inventory).topology, Kept(inventory, name)
    earlier = kept.read()
    head = Head(topology)
    if earlier is None or "listed" not in earlier.done:
        node = checks.node_of(topology, inventory, name)
        checks.refuse_head(node, inventory, "remove")
        checks.refuse_joined(topology, inventory)
        pool = head.nodes()
        checks.removable(topology, inventory, pool, name)
        checks.engine_stays(inventory, head)
        place = listing(inventory, name)
        if not without_teardown and not answers(node):
            raise UsageFault(
                f"{name} ({node.ssh.host}) does not answer by ssh, so nothing can be taken back there; remove it "
                "all the same: --without-teardown"
            )
        progress = kept.begin("remove", name)
        if checks.short(name) in pool:
            head.drain(checks.short(name), DrainReason("remove"))
            wait_empty(head, checks.short(name), grace_s, say)
        if not without_teardown and "teardown" not in progress.done:
            say(f"taking back what was provisioned on {name}")
            playbooks.run(playbooks.TEARDOWN, inventory, name)
            progress = kept.step(progress, "teardown")
        say(f"{place.file}: {number_of(place.lines, 'line')} of {name} go")
        place.take_out()
        progress = kept.step(progress, "listed")
    else:
        progress = kept.begin("remove", name)
    if "learned" not in progress.done:
        say("all others learn that it has gone; leases there go on")
        playbooks.run(playbooks.SITE, inventory, None, playbooks.learning())
        progress = kept.step(progress, "learned")
    if checks.short(name) in head.nodes():
        raise UsageFault(f"Slurm still knows {name}; see /etc/slurm/slurm.conf on {head.node.name}")
    kept.clear()


def wait_empty(
    head: Head, name: str, grace_s: int | None, say: Say, pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Return when nothing runs on a drained node any more. With `grace_s` leases are taken back, told so long before;
    native jobs, whom nobody can tell, end when that time is over."""
    asked: set[int] = set()
    began, told, shown = now(), -TOLD_EACH_S, ""
    while jobs := head.jobs_on(name):
        if grace_s is not None:
            for job in jobs:
                if job.lease not in asked and (is_lease(job) or now() - began >= grace_s):
                    asked.add(job.lease)
                    head.end(job, grace_s, is_lease(job))
        words = ", ".join(_job(job) for job in jobs)
        if words != shown or now() - told >= TOLD_EACH_S:
            say(f"{name} is drained; {len(jobs)} still there after {now() - began:.0f} s: {words}")
            shown, told = words, now()
        pause(PAUSE_S)


def _job(job: SlurmJob) -> str:
    kind = "lease" if is_lease(job) else "job"
    end = "" if job.until is None else f" until {time.strftime('%H:%M', time.localtime(job.until))}"
    return f"{kind} {job.lease} of {job.user}{end}"
