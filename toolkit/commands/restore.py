"""`toolkit restore`: a new head from the backup of the lost one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when something is restored, not for --help
    from toolkit.backup.restoring import Restored, Restoring


@command(epilog=epilogue("restore"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@inventory_option
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True, metavar="FILE",
              help="Decrypt with this key, the file that age-keygen wrote.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace what the head has, and keep it there; what began since the "
              "backup ends.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Read the backup, ask head and nodes, print the plan; change nothing.")
@json_option
@click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED)
def restore(dry_run: bool, as_json: bool, **given: Any) -> None:
    """Bring back the head of a pool from a backup.

    For a new machine with the name and address of the lost head, on which only the system is installed. All of the
    backup is read first; one that is damaged, of another head or cluster, in the form of an older toolkit, or of a
    newer Slurm than the head has changes nothing. Then the head takes its keys, database and state, the site is
    deployed as by toolkit deploy, and what ran on the nodes is looked up: each lease that goes on or has ended is
    printed. Run this before any toolkit deploy: a head that is deployed without its state is refused, because it would
    end what runs.
    Ctrl-C stops; the same command goes on.

    \b
    toolkit restore site.backup --key backup.key -i inventories/site --dry-run
    toolkit restore site.backup --key backup.key -i inventories/site
    toolkit restore site.backup --key backup.key -i inventories/site -- -e reboot=if_needed
    """
    from toolkit.backup import restoring
    from toolkit.inventory import read_site

    asked = restoring.Asked(**given)
    try:
        work = restoring.Restoring(asked, read_site(asked.inventory).topology, progress)
        if dry_run:
            _plan(work, as_json)
            return
        done = work.go()
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        raise restoring.RestoreFault(
            f"{where}{fault.strerror or fault}; continue with: {restoring.quoted(asked)}", Exit.FAILED
        ) from None
    except KeyboardInterrupt:
        click.echo(f"interrupted; continue with: {restoring.quoted(asked)}", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        answers.say("restore", _document(done))
    else:
        _print(done)
    raise SystemExit(Exit.INCOMPLETE if done.silent else Exit.OK)


def _plan(work: Restoring, as_json: bool) -> None:
    from toolkit.backup.archive import PARTS
    from toolkit.backup.restoring import JobOutcome, Restored

    work.refuse_pool()
    ran, silent = work.running()
    if as_json:
        jobs = tuple(JobOutcome(job, "", nodes, False, "runs") for job, nodes in sorted(ran.items()))
        answers.say("restore", _document(Restored(work.header, jobs, silent, 0.0)))
        return
    click.echo(f"backup     of {work.header.made}, cluster {work.header.cluster}, Slurm {work.header.slurm or '?'}")
    for part, size in work.header.parts.items():
        if part in PARTS:
            click.echo(f"brings     {PARTS[part]} ({size} bytes)")
    for job, nodes in sorted(ran.items()):
        click.echo(f"runs       job {job} on {', '.join(nodes)}")
    for name in silent:
        click.echo(f"not asked  {name}: it does not answer", err=as_json)
    click.echo("nothing was changed")


def _print(done: Restored) -> None:
    for job in done.jobs:
        click.echo(job.words)
    for name in done.silent:
        click.echo(f"{name} did not answer; what ran there is not known", err=True)
    click.echo(
        "earlier backups in the head's folder: the new head has a key of its own, so it does not read, count or remove "
        "them; your key reads them"
    )
    if done.replaced:
        click.echo(f"what was on the head before is kept there in {done.replaced}; remove it when nobody needs it")
    ended = sum(job.state == "ended" for job in done.jobs)
    click.echo(
        f"the head has the state of {done.header.made}; {number_of(len(done.jobs) - ended, 'job')} of "
        f"{len(done.jobs)} went on; {done.seconds / 60:.1f} min"
    )


def _document(done: Restored) -> dict[str, object]:
    return {
        "header": done.header.document(), "minutes": round(done.seconds / 60, 2), "not_asked": list(done.silent),
        "replaced": done.replaced,
        "jobs": [{"job": one.job, "user": one.user, "nodes": list(one.nodes), "lease": one.lease, "state": one.state,
                  "why": one.why} for one in done.jobs],
    }  # fmt: skip
