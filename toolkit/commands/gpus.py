"""`toolkit gpus`: the pool, who has what of it, and what is free."""

from __future__ import annotations

from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.gpus_queue import DAYS, View, clear, queue_table, show_limits, show_start
from toolkit.commands.lease_shared import head_options, on_head, request_options
from toolkit.exits import epilogue
from toolkit.lease import Exit, LeaseError, pool
from toolkit.lease.display import EMULATED, clock, several, table
from toolkit.lease.fraction import share_text
from toolkit.lease.jobs.slurm import said
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.pool_file import read_pool
from toolkit.lease.queue.reservations import calendar, parse_reservations
from toolkit.lease.queue.waiting_list import waiting
from toolkit.pool_answers import gpus_data

WATCH_S = 10
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


FRONT = ("--inventory", "--when", "--gpus", "--part", "--limits", "--watch", "--calendar", "--json")
"""What --help shows; --help-all shows all options."""


@command(epilog=epilogue("gpus"), front=FRONT)
@head_options
@click.option("--when", "when", is_flag=True, help="Show when GPUs could be had: --gpus, --part and so on say which.")
@request_options
@click.option("--limits", "own_limits", is_flag=True, help="Show what the pool allows you, and what you have of it.")
@click.option("--watch", "watch", is_flag=True, help=f"Show it again every {WATCH_S} seconds, until Ctrl-C.")
@click.option("--calendar", "dates", is_flag=True, help="Show which servers are kept for whom, and when.")
@click.option("--days", type=int, default=DAYS, show_default=True, help="Look so many days ahead, with --calendar.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def gpus(**options: Any) -> None:
    """Show the GPUs of the pool and who uses them.

    Lists server, model, what is free, who has the rest until when, and who waits.

    \b
    toolkit gpus                      on any machine of the pool
    toolkit gpus -i inventories/SITE  from elsewhere, by way of the head
    toolkit gpus --when -n 4          when could I have four?
    toolkit gpus --limits             what may I have?
    toolkit gpus --watch              pool and queue, again and again
    toolkit gpus --calendar           reservations of the next week
    toolkit gpus --json | jq '.gpus[] | select(.free > 0)'
    """
    view = View.checked(**options)
    if on_head(view.inventory, view.words()):
        return
    host = this_host()
    if view.dates:
        _calendar(host, view.days, view.as_json)
    elif view.when:
        show_start(host, view.wish, view.as_json)
    elif view.own_limits:
        show_limits(host, view.as_json)
    else:
        _show(host, view.as_json)
        while view.watch:
            host.clock.sleep(WATCH_S)
            clear()
            _show(host, False)


def _show(host: Host, as_json: bool) -> None:
    """The pool and its queue, once."""
    pool_file, everyone, jobs = read_pool(host.pool_conf), host.slurm.nodes(), host.slurm.jobs()
    nodes = pool.servers_of(everyone, pool_file)
    found = pool.gpus_of(nodes, jobs, pool_file)
    queue = [one for one in waiting(host, jobs) if pool_file.joined in ("", one.gpu_class)]
    for node in nodes:
        if node.problem:
            click.echo(f"{node.name}: {node.problem}", err=True)
    if as_json:
        answers.say("gpus", gpus_data(found, queue))
        return
    if not found:
        click.echo("The pool has no GPUs.")
        return
    click.echo(table(TITLES, [_row(gpu) for gpu in found]))
    label = f" {EMULATED}" if any(gpu.emulated for gpu in found) else ""
    click.echo(f"{several(len(found), 'GPU')}, {pool.free_text(found)} free.{label}")
    if queue:
        click.echo(f"\n{queue_table(queue)}")
