"""`toolkit deploy`: provision a site, and say what became of each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.command_class import command
from toolkit.commands.playbook_options import playbook_options
from toolkit.exits import epilogue

if TYPE_CHECKING:  # loaded when a site is provisioned, not for --help
    from toolkit.deploy.carried_out import DeployRequest


@command(epilog=epilogue("deploy"))
@playbook_options(
    "Provision",
    click.option("--skip-unfit", is_flag=True, help="Go on without nodes that preflight refuses, and end with 3."),
)
def deploy(request: DeployRequest, skip_unfit: bool, as_json: bool) -> None:
    """Provision the nodes of an inventory.

    Runs site.yml by ansible-runner. Shows stage, role, nodes and the time that is left (from this site's last run),
    keeps the whole log in a file, and ends with one line for each node. Safe to run again at any time: what is done is
    not done twice. Ctrl-C stops Ansible; the same command goes on. What follows -- goes to ansible-playbook. Who
    deployed which commit when and what it changed goes into this machine's record of the site, and from there into each
    validation.

    \b
    toolkit deploy                                      the virtual lab
    toolkit deploy -i inventories/site --check          what it would change; right on fresh nodes too
    toolkit deploy -i inventories/site
    toolkit deploy -i inventories/site --limit gpu3,head            a new node
    toolkit deploy -i inventories/site --skip-unfit                 one broken node of fifty stops nobody
    toolkit deploy -i inventories/site -- -e reboot=if_needed       may reboot, in batches
    toolkit deploy -i inventories/site -- --vault-password-file ~/.vault
    """
    from toolkit.deploy.carried_out import carry_out
    from toolkit.upgrade.declared import refuse_going_back
    from toolkit.upgrade.state import Kept

    job = request.deployment(skip_unfit)
    state = Kept(job.inventory).read_open()
    if state is not None:
        click.echo(
            f"warning: the {state.verb} to {state.to} is not finished ({state.where()}); this deploys the inventory's "
            "release, on nodes of that too",
            err=True,
        )
    if not job.check:
        refuse_going_back(job.inventory, job.arguments)
    carry_out(job, as_json)
