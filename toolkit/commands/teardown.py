"""`toolkit teardown`: take back what `toolkit deploy` did."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from toolkit.command_class import command
from toolkit.commands.deploy import carry_out, found_inventory, refuse_options
from toolkit.deploy import running
from toolkit.errors import UsageFault
from toolkit.exits import epilogue
from toolkit.lab.spec import LAB
from toolkit.lab_inventory import is_of_a_lab
from validation.base import project
from validation.base.project import ROOT

PLAYBOOK = "playbooks/teardown.yml"


@command(epilog=epilogue("teardown"))
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    help=f"Read this Ansible inventory, a folder or a file.  [default: {LAB}]",
)
@click.option(
    "--limit", metavar="NODES", help="Take back only these nodes, as ansible-playbook takes them: gpu3,head or '!gpu2'."
)
@click.option(
    "--check",
    "--dry-run",
    "check",
    is_flag=True,
    help="Show what would change, by Ansible's check mode; change nothing.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a real site is taken back; a lab is never asked about.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout: what was done to each node.")
@click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED)
def teardown(
    inventory: Path | None,
    limit: str | None,
    check: bool,
    yes: bool,
    as_json: bool,
    ansible_options: tuple[str, ...],
) -> None:
    """Undo a deployment.

    Runs playbooks/teardown.yml by ansible-runner. Takes back what the roles of site.yml did, stage by stage in reverse
    order: packages, files, services, firewall rules. Nothing else on the nodes is touched, and no node reboots. Leases
    and jobs of the pool end, so release them first. Before a real site is taken back you are asked; a script gives
    --yes. Safe to run again: Ctrl-C stops Ansible, and the same command goes on. What follows -- goes to
    ansible-playbook.

    \b
    toolkit teardown                                 the virtual lab
    toolkit teardown -i inventories/site --dry-run   what it would take back
    toolkit teardown -i inventories/site             asks first; --yes does not
    toolkit teardown -i inventories/site --limit gpu3 --yes
    """
    refuse_options(ansible_options)
    playbook, found = project.file(PLAYBOOK, ROOT), found_inventory(inventory)
    if not check and not yes and not is_of_a_lab(found):
        _ask(found, limit)
    job = running.Deployment(
        playbook, project.file("ansible.cfg", ROOT), found, limit, check, ansible_options, command="teardown"
    )
    carry_out(job, as_json)


def _ask(inventory: Path, limit: str | None) -> None:
    """The consent of whoever sits at the terminal. UsageFault where nobody does, Abort where it is refused."""
    nodes = limit or "all nodes"
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageFault(
            f"{inventory}: is a real site, and nobody can be asked here; nothing was changed. "
            "Give --yes, or --dry-run to see what would change"
        )
    click.echo(f"This takes back what toolkit deploy did on {nodes} of {inventory}.", err=True)
    try:
        click.confirm("Go on?", abort=True, err=True)
    except click.Abort:
        click.echo("nothing was changed", err=True)
        raise
