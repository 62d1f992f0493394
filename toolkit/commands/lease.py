"""`toolkit lease`: GPUs for longer than one program."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from toolkit import answers
from toolkit.answers import json_option
from toolkit.command_class import group
from toolkit.commands import lease_static
from toolkit.commands.lease_shared import (
    Duration,
    grace_type,
    head_options,
    on_head,
    request_options,
    say,
)
from toolkit.exits import epilogue
from toolkit.lease import Exit, LeaseError, endpoint
from toolkit.lease.client import ask, endings, manage, running, shown_gpus
from toolkit.lease.client.keep_request import DEFAULT_S, KeepRequest
from toolkit.lease.client.manage import Lease
from toolkit.lease.display import clock, shortened, table, until
from toolkit.lease.durations import UNITS
from toolkit.lease.engines import load
from toolkit.lease.kept import record
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.static_forms import StaticLease
from toolkit.pool_answers import lease_data


@group(epilog=epilogue("lease"))
def lease() -> None:
    """Keep GPUs for longer than one program.

    \b
    toolkit lease request --gpus 4 --time 2h
    toolkit run --lease 42 -- python train.py
    toolkit lease extend 42 --time 1h
    toolkit lease release 42
    """


@dataclass(frozen=True)
class Release:
    """What became of a lease that was to be released."""

    lease: str
    state: Literal["released", "ends", "had-ended", "refused"]
    words: str


def _release(host: Host, item: Lease, grace_s: int) -> Release:
    """Release one of the pool's."""
    if item.state == "ended":
        why = endings.ended_words(item.over or item.jobs[0])
        return Release(str(item.id), "had-ended", f"has already ended: {why}")
    try:
        manage.release(host, item, grace_s)
    except LeaseError as fault:
        return Release(str(item.id), "refused", str(fault))
    if grace_s:
        return Release(str(item.id), "ends", f"ends in {grace_s} s")
    return Release(str(item.id), "released", "released")


def _say_release(done: Release) -> None:
    """In a line, an error on its own stream."""
    if done.state == "refused":
        click.echo(f"error: {done.words}", err=True)
    else:
        click.echo(f"lease {done.lease}{' ' if done.state == 'had-ended' else ': '}{done.words}")


def _static_table(leases: list[StaticLease]) -> str:
    cells = [[one.lease, one.what, one.where, one.host, clock(one.until)] for one in leases]
    return table(("LEASE", "WHAT", "WHERE", "CLIENT", "UNTIL"), cells) if cells else "no static leases"


_RUNS_COLUMNS = 48
"""Of a program in a table; --json and `lease show` have all of it."""


def _runs(item: Lease) -> str | None:
    """The user's own program that goes on alone on a lease of theirs, as this machine knows it."""
    found = record.running().get(item.id) if item.jobs[0].user == manage.me() else None
    return None if found is None else found.order.program


def _data(item: Lease) -> dict[str, Any]:
    return lease_data(item, _runs(item))


@lease.command()
@partial(request_options, default_time=f"{DEFAULT_S // UNITS['h']}h")
@head_options
@click.option("--static", help="Grant an instance on this server without Slurm, as an administrator.")
@click.option("--client", help="Name the machine that will use it, with --static.")
@click.option("--user", help="Name the user on that machine, with --static.")
@click.option("--no-wait", is_flag=True, help="Return at once; the lease starts when its turn comes.")
@json_option
def request(**options: Any) -> None:
    """Ask for GPUs, and wait until they are there.

    The lease ends when its time is over.

    \b
    toolkit lease request --gpus 4 --time 2h
    toolkit lease request --gpus 2 --part 1/7 --class v100
    toolkit lease request --static gpu1 --client client1 --user alice --part 0.5 -i inventories/SITE
    """
    wanted = KeepRequest.checked(**options)
    if wanted.static is not None:
        _grant(wanted)
    else:
        _keep(wanted)


def _grant(wanted: KeepRequest) -> None:
    """Without Slurm, as an administrator."""
    granted = lease_static.request(wanted)
    if wanted.as_json:
        answers.say("static-lease", asdict(granted) | {"until": answers.when(granted.until)})
    else:
        click.echo(granted.words)


def _keep(wanted: KeepRequest) -> None:
    """A lease of the pool."""
    host = this_host()
    submission = ask.against_pool(host, wanted.timed, "hold", say)
    what = submission.request.text
    if wanted.no_wait:
        number = ask.submit(host, submission)
        item = manage.find(host, number)
        if wanted.as_json:
            answers.say("lease", _data(item))
        else:
            click.echo(f"lease {number}: asked for {what}")
        return
    number, endpoints = ask.obtain(host, submission, say)
    item = manage.find(host, number)
    if wanted.as_json:
        answers.say("lease", _data(item))
    else:
        click.echo(f"lease {number}: {what} {until(item.end)}: {running.describe(endpoints)}")
    for note in running.notes_of(endpoints):
        say(f"lease {number}: {note}")


def _not_yet(reason: str) -> str:
    return f"not yet: {reason}" if reason else "not yet"


def _waits_for(item: Lease) -> str:
    """Slurm's reason in place of where it is, '' where there is none."""
    return f"({item.reason})" if item.reason else ""


@lease.command("list")
@head_options
@click.option("--static", help="List the static leases (without Slurm) of this server.")
@click.option("--all", "everyone", is_flag=True, help="List the leases of all users.")
@json_option
def list_(inventory: Path | None, static: str | None, everyone: bool, as_json: bool) -> None:
    """List your leases, the waiting ones too.

    \b
    toolkit lease list
    toolkit lease list --all --json
    """
    if static is not None:
        there = lease_static.listed(inventory, static)
        if as_json:
            timed = [{**asdict(one), "until": answers.when(one.until)} for one in there]
            answers.say("static-leases", {"server": static, "leases": timed})
        else:
            click.echo(_static_table(there))
        return
    flags = [*(["--all"] if everyone else []), *(["--json"] if as_json else [])]
    if on_head(inventory, ["lease", "list", *flags]):
        return
    found = [item for item in manage.leases(this_host().slurm.jobs()) if item.state != "ended"]
    found = [item for item in found if everyone or item.jobs[0].user == manage.me()]
    if as_json:
        answers.say("leases", {"leases": [_data(item) for item in found]})
        return
    if not found:
        click.echo("no leases" if everyone else f"{manage.me()} has no leases")
        return
    rows = [[str(i.id), i.jobs[0].user, i.what, i.where or _waits_for(i), i.state, clock(i.end)] for i in found]
    programs = [_runs(item) or "" for item in found]
    titles = ["LEASE", "USER", "WHAT", "WHERE", "STATE", "UNTIL"]
    if any(programs):
        titles.append("RUNS")
        rows = [[*row, shortened(runs, _RUNS_COLUMNS)] for row, runs in zip(rows, programs)]  # noqa: B905 - Python 3.9
    click.echo(table(titles, rows))


@lease.command()
@head_options
@click.argument("number", type=int, metavar="LEASE")
@json_option
def show(inventory: Path | None, number: int, as_json: bool) -> None:
    """Show one lease: what, where, until when, and why it ended.

    \b
    toolkit lease show 42
    """
    if on_head(inventory, ["lease", "show", str(number), *(["--json"] if as_json else [])]):
        return
    host = this_host()
    item = manage.find(host, number)
    if as_json:
        answers.say("lease", _data(item))
        return
    first = item.jobs[0]
    lines = [
        f"lease {number}: {item.what} of {first.user}, {item.state}",
        f"  class   {first.partition}",
        f"  where   {item.where or _not_yet(item.reason)}",
        f"  until   {clock(item.end)}",
    ]
    lines += [f"  ended   {endings.ended_words(item.over)}"] if item.over else []
    runs = _runs(item)
    lines += [f"  runs    {runs}  (toolkit logs -f {number})"] if runs else []
    click.echo("\n".join(lines))
    if item.state == "running" and item.jobs[0].user == manage.me():
        for one in endpoint.endpoints_of(host, item.jobs):
            for device in one.devices:
                label = " (emulated)" if device.emulated else ""
                click.echo(f"  device  {one.node}:{device.index} {device.name}{label}, {device.usable_mib} MiB")
            for note in one.notes:
                click.echo(f"  note    {note}")


@lease.command()
@click.argument("number", type=int, metavar="LEASE")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def env(number: int, folder: Path, as_json: bool) -> None:
    """Print what a program needs that toolkit run does not start.

    Its files are written into FOLDER, which is made and is for you alone.

    \b
    toolkit lease request --gpus 2 --time 8h
    toolkit lease env 42 ~/lease-42 > lease.sh; . ./lease.sh

    Anybody who has FOLDER, or what is printed, has the lease. The lease ends at its time whatever its programs do.
    """
    host = this_host()
    item = manage.find(host, number)
    if item.state != "running":
        raise LeaseError(f"lease {number} does not run: {item.state}", Exit.RETRY)
    ends = endpoint.endpoints_of(host, item.jobs)
    engine_dir = endpoint.check_engine(ends, host.engine_dir).folder
    adapter = load(ends[0].engine)
    try:
        folder.mkdir(mode=0o700)
    except OSError as fault:
        raise LeaseError(f"{folder}: {fault.strerror}; name a folder that is to be made") from None
    folder = folder.resolve()
    values = adapter.client(engine_dir, [end.server for end in ends], folder)
    values |= {"ELASTIC_AI_LEASE": str(number), "ELASTIC_AI_GPUS": endpoint.gpus_text(ends)}
    values = shown_gpus.environment(engine_dir, values, os.environ)
    if not as_json:
        click.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items()))
        return
    document = {
        "lease": number,
        "engine": ends[0].engine,
        "environment": values,
        "servers": [f"{end.address}:{end.port}" for end in ends],
        "secret": None if adapter.secret(folder) is None else str(adapter.secret(folder)),
        "secret_variable": adapter.SECRET_VARIABLE,
        "holds_memory_of": adapter.HOLDS_MEMORY_OF,
    }
    answers.say("lease-env", document)


@lease.command()
@click.argument("number", type=int, metavar="LEASE")
@click.option(
    "--time", "seconds", type=Duration(), metavar="TIME", required=True, help="Keep it so much longer, as 90m or 2h."
)
@json_option
def extend(number: int, seconds: int, as_json: bool) -> None:
    """Keep a lease longer, up to what the pool allows you.

    \b
    toolkit lease extend 42 --time 90m
    """
    host = this_host()
    words = manage.extend(manage.find(host, number), seconds)
    if as_json:
        answers.say("lease", _data(manage.find(host, number)))
    else:
        click.echo(words)


@lease.command()
@head_options
@click.option("--static", help="Release static leases (without Slurm) of this server.")
@click.argument("names", nargs=-1, metavar="[LEASE]...")
@click.option("--all", "everything", is_flag=True, help="Release all your leases.")
@click.option(
    "--grace",
    "grace_s",
    type=grace_type,
    default=0,
    metavar="TIME",
    help="Notify the program first and wait so long, as 2m; a number alone is seconds. For administrators.",
)
@json_option
def release(
    inventory: Path | None,
    static: str | None,
    names: tuple[str, ...],
    everything: bool,
    grace_s: int,
    as_json: bool,
) -> None:
    """Give leases back.

    An administrator releases anybody's, at once or with --grace TIME.

    \b
    toolkit lease release 42
    toolkit lease release 42 --grace 2m      its program is notified, gets its signal, and has two minutes
    """
    if bool(names) == everything:
        raise LeaseError("name the leases to release, or give --all")
    if static is not None and grace_s:
        raise LeaseError("--grace needs Slurm, which static leases do without")
    if static is not None:
        said = [lease_static.release(inventory, static, name) for name in names]
        if as_json:
            rows = [Release(name, "released", words) for name, words in zip(names, said)]  # noqa: B905 - Python 3.9
            answers.say("released-leases", {"leases": list(map(asdict, rows))})
        else:
            click.echo("\n".join(said))
        return
    if not all(re.fullmatch(r"[0-9]{1,9}", name) for name in names):
        raise LeaseError("leases are named by number; toolkit lease list shows yours")
    numbers = [int(name) for name in names]
    flags = [*(["--all"] if everything else []), *(["--grace", f"{grace_s}s"] if grace_s else [])]
    flags += ["--json"] if as_json else []
    if on_head(inventory, ["lease", "release", *map(str, numbers), *flags]):
        return
    host = this_host()
    mine = [i for i in manage.leases(host.slurm.jobs()) if i.state != "ended" and i.jobs[0].user == manage.me()]
    done = []
    for item in mine if everything else [manage.find(host, number) for number in numbers]:
        done.append(_release(host, item, grace_s))
        if not as_json or done[-1].state == "refused":
            _say_release(done[-1])
    if as_json:
        answers.say("released-leases", {"leases": list(map(asdict, done))})
    if any(one.state == "refused" for one in done):
        sys.exit(Exit.RETRY if everything else Exit.USAGE)
