"""`toolkit teardown`: take back what `toolkit deploy` did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.command_class import command
from toolkit.commands.playbook_options import playbook_options
from toolkit.errors import UsageFault
from toolkit.exits import epilogue

if TYPE_CHECKING:  # loaded when a site is taken back, not for --help
    from toolkit.deploy.carried_out import DeployRequest


@command(epilog=epilogue("teardown"))
@playbook_options(
    "Take back",
    click.option(
        "--yes", is_flag=True, help="Do not ask before a real site is taken back; a lab is never asked about."
    ),
)
def teardown(request: DeployRequest, yes: bool, as_json: bool) -> None:
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
    from toolkit.deploy.carried_out import carry_out
    from toolkit.lab_inventory import is_of_a_lab

    job = request.teardown()
    if not job.check and not yes and not is_of_a_lab(job.inventory):
        _ask(job.inventory, job.limit)
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
