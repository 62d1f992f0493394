"""`toolkit pool`: the pool's policies, before they are applied."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import inventory_option, json_option
from toolkit.exits import Exit, epilogue
from toolkit.joined.asked import Joined, check_joined
from toolkit.policy_check import Checked, check_file, named
from validation.base.counting import number_of

WIDTH = 22


@group(epilog=epilogue("pool"))
def pool() -> None:
    """Check a pool's policies, or the cluster it joins.

    \b
    toolkit pool check group_vars/all/pool.yml -i inventories/SITE
    toolkit pool check -i inventories/SITE      a pool in a Slurm of the site's own
    """


def _print(checked: Checked) -> None:
    for change in checked.changes:
        click.echo(named(change))
        for one in change.differences:
            click.echo(f"    {one.what.ljust(WIDTH)} {one.before} -> {one.after}")
    if not checked.changes:
        click.echo("Nothing changes for anybody.")
    for held, why in ((one.held, one.why) for one in checked.outside):
        state = "would wait without end; release it" if held.waits else "goes on until it ends"
        size = "waits" if held.waits else number_of(str(held.gpus), "GPU")
        click.echo(f"lease {held.lease} of {held.user} ({size}) {state}: {held.user} {why}")
    for group_name in checked.unknown_groups:
        click.echo(f"group {group_name} is not known on {checked.head}: it has no members")
    click.echo(
        "Nothing was applied." + (f" To apply: toolkit deploy -i {checked.inventory}" if checked.changes else "")
    )


def _data(checked: Checked) -> dict[str, object]:
    found = asdict(checked)
    for one in found["outside"]:
        one["held"]["gpus"] = float(one["held"]["gpus"])
    return found


def _joined(found: Joined, as_json: bool) -> None:
    if as_json:
        answers.say("pool-joined", {**asdict(found), "inventory": found.inventory})
    else:
        for title, needed in (("Needed for leases:", True), ("Works without, and less well:", False)):
            lines = [one.words for one in found.missing if one.needed is needed]
            click.echo("\n".join([title, *(f"  - {line}" for line in lines)]) if lines else "", nl=bool(lines))
        name = f"Cluster {found.cluster} (Slurm {found.release})"
        click.echo(
            f"{name}: for its administrator, docs/how-to/join-slurm.md. Nothing was changed."
            if found.missing
            else f"{name} has everything that leases need."
        )
    if any(one.needed for one in found.missing):
        raise SystemExit(Exit.FAILED)


@pool.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@inventory_option
@json_option
def check(file: Path | None, inventory: Path, as_json: bool) -> None:
    """Print what a policy file would change, and for whom.

    FILE is read like group_vars/all/pool.yml and compared with the policy that the head has now. The head also says who
    is in the Unix groups, and which leases run. Nothing is changed anywhere.

    Without FILE, for a pool that joins a Slurm of the site's own (slurm_pool.join): print what that cluster lacks for
    leases, for its administrator. Exit code 1 if something is needed.

    \b
    toolkit pool check group_vars/all/pool.yml -i inventories/SITE
    toolkit pool check new.yml --json | jq '.changes[].users'
    toolkit pool check -i inventories/SITE
    """
    if file is None:
        _joined(check_joined(inventory), as_json)
        return
    checked = check_file(file, inventory)
    if as_json:
        answers.say("pool-check", {**_data(checked), "file": file})
        return
    _print(checked)
