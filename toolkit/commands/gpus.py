"""`toolkit gpus`: the pool, who has what of it, and what is free."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.lease_shared import head_options, on_head
from toolkit.lease import Exit, LeaseError, pool
from toolkit.lease.display import EMULATED, clock, several, table
from toolkit.lease.fraction import share_text
from toolkit.lease.host import Host, this_host
from toolkit.lease.pool_file import read_pool
from toolkit.lease.reservations import calendar, parse_reservations
from toolkit.lease.slurm import said

DAYS, MOST_DAYS = 7, 366
TITLES = ("SERVER", "GPU", "CLASS", "MODEL", "MEMORY", "FREE", "IN USE")


def _row(gpu: pool.PoolGpu) -> list[str]:
    memory = f"{gpu.memory_mib / 1024:.4g} GiB" if gpu.memory_mib >= 4096 else f"{gpu.memory_mib} MiB"
    uses = "; ".join(pool.used_text(use, gpu.of, clock(use.until)) for use in gpu.uses)
    return [
        gpu.node,
        str(gpu.index),
        gpu.gpu_class,
        gpu.model,
        memory if gpu.memory_mib else "?",
        gpu.state or share_text(gpu.free, gpu.of),
        uses,
    ]


def _data(gpu: pool.PoolGpu) -> dict[str, Any]:
    """Of a GPU for --json; what is not known of it is null."""
    return {
        **asdict(gpu),
        "memory_mib": gpu.memory_mib or None,
        "context_bytes": gpu.context_bytes or None,
        "state": gpu.state or None,
        "uses": [asdict(use) | {"until": answers.when(use.until)} for use in gpu.uses],
        "free_shards": gpu.free,
        "free": gpu.free / gpu.of,
    }


def _calendar(host: Host, days: int, as_json: bool) -> None:
    now = host.clock.time()
    done = host.slurm.run(["scontrol", "-o", "show", "reservation"])
    if done.returncode != 0:
        raise LeaseError(f"Slurm does not answer: {said(done)}", Exit.RETRY)
    found = calendar(parse_reservations(done.stdout), now, days)
    if as_json:
        entries: list[dict[str, Any]] = [
            {"start": answers.when(start), "end": answers.when(end), "now": start <= now, "for": one.whom}
            | {"name": one.title, "servers": list(one.nodes), "repeats": one.repeats.lower() or None}
            for start, end, one in found
        ]
        answers.say("calendar", {"days": days, "reservations": entries})
        return
    if not found:
        click.echo(f"Nothing is kept for anybody in the next {several(days, 'day')}.")
        return
    rows = [
        ["now" if start <= now else clock(start, now), clock(end, now), one.title, ", ".join(one.nodes), one.whom]
        for start, end, one in found
    ]
    click.echo(table(("FROM", "UNTIL", "RESERVATION", "SERVERS", "FOR"), rows))


@command()
@head_options
@click.option("--calendar", "dates", is_flag=True, help="Show which servers are kept for whom, and when.")
@click.option("--days", type=int, default=DAYS, show_default=True, help="Look so many days ahead, with --calendar.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def gpus(inventory: Path | None, dates: bool, days: int, as_json: bool) -> None:
    """Show the GPUs of the pool and who uses them.

    Lists server, model, what is free, and who has the rest until when.

    \b
    toolkit gpus                      on any machine of the pool
    toolkit gpus -i inventories/SITE  from elsewhere, by way of the head
    toolkit gpus --json | jq '.gpus[] | select(.free > 0)'
    toolkit gpus --calendar           reservations of the next week
    """
    if not 1 <= days <= MOST_DAYS:
        raise LeaseError(f"--days {days}: give 1 to {MOST_DAYS}")
    if days != DAYS and not dates:
        raise LeaseError("--days goes with --calendar")
    words = ["gpus", *(["--calendar", "--days", str(days)] if dates else []), *(["--json"] if as_json else [])]
    if on_head(inventory, words):
        return
    host = this_host()
    if dates:
        _calendar(host, days, as_json)
        return
    nodes = host.slurm.nodes()
    found = pool.gpus_of(nodes, host.slurm.jobs(), read_pool(host.pool_conf))
    for node in nodes:
        if node.problem:
            click.echo(f"{node.name}: {node.problem}", err=True)
    if as_json:
        answers.say("gpus", {"gpus": [_data(gpu) for gpu in found]})
        return
    if not found:
        click.echo("The pool has no GPUs.")
        return
    click.echo(table(TITLES, [_row(gpu) for gpu in found]))
    label = f" {EMULATED}" if any(gpu.emulated for gpu in found) else ""
    click.echo(f"{several(len(found), 'GPU')}, {pool.free_text(found)} free.{label}")
