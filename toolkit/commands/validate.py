"""`toolkit validate`: measure a site and sign it off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from toolkit.command_class import command
from toolkit.commands.formats import format_option
from toolkit.commands.options import details, details_option, inventory_option, launcher_options, runs_dir_option
from toolkit.commands.training_options import training_options, training_request
from toolkit.exits import epilogue
from toolkit.validate.request import Output, ValidateRequest
from toolkit.validate.training import OPTIONS
from validation.plan.offered import DEFAULT, MINUTES, MOST_MINUTES, SOAK_HOURS, SUITE_NAMES

FRONT = (
    "--fabric", "--inventory", "--profile", "--suite", "--here", "--resume", "--dry-run", "--format", "--json",
)  # fmt: skip
"""What --help shows; --help-all shows all options."""


@command(epilog=epilogue("validate"), front=FRONT)
@click.option(
    "--fabric",
    "fabric",
    metavar="NAME[,NAME...]",
    help="Measure over this network; toolkit fabrics lists them. Several give one run each, then a page of all. "
    " [default: the inventory's]",
)
@inventory_option
@click.option(
    "--here", is_flag=True, help="Measure this machine by itself, as this user: no inventory, no ssh, nothing owed."
)
@click.option("--quick", is_flag=True, help="Take each measurement at its shortest, with --here.")
@click.option("--anyway", is_flag=True, help="Measure GPUs that somebody works on too, with --here.")
@click.option(
    "--minutes",
    type=click.IntRange(1, MOST_MINUTES),
    help=f"Load for so many minutes, with --suite burn-in.  [default: {MINUTES}]",
)
@click.option(
    "--hours",
    type=click.IntRange(1, MOST_MINUTES // 60),
    help="Load for so many hours, with --suite burn-in; 8, 24, 72 and 168 are usual.",
)
@click.option(
    "--reboots",
    type=click.IntRange(1),
    metavar="N",
    help="Allow suite recovery to reboot each GPU server so often, the head once, and to let a server die under a job.",
)
@click.option(
    "--power-cycles",
    type=click.IntRange(1),
    metavar="N",
    help="Allow suite recovery to switch each GPU server off and on by its BMC so often, without an orderly stop.",
)
@click.option(
    "--soak",
    type=click.Choice(list(SOAK_HOURS)),
    is_flag=False,
    flag_value=next(iter(SOAK_HOURS)),
    help="Run suite burn-in for a night, a day, three or a week, GPUs and fabric at once.  [--soak alone: 8h]",
)
@click.option(
    "--segment",
    type=click.IntRange(1, 24 * 60),
    metavar="MINUTES",
    help="Cut the burn-in into segments of so many minutes; each is kept when it ends.  [default: 60]",
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help=f"Measure this suite; repeatable. There are: {', '.join(SUITE_NAMES)}.  [default: the profile's, else "
    f"{', '.join(DEFAULT)}]",
)
@click.option("--unit", metavar="GROUP", help="Measure the nodes of this group alone: a rack, a scalable unit.")
@click.option(
    "--profile",
    metavar="NAME|FILE",
    help="Judge by what is owed for this delivery; toolkit profiles lists them.  [default: acceptance_profile "
    "of the inventory, otherwise everything]",
)
@click.option(
    "--waivers",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Lift failures that somebody accepted in this file.  [default: waivers.yml beside the inventory, if there]",
)
@click.option(
    "--branding",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take customer, logo, language and own text from this report.yml.  [default: report.yml beside the "
    "inventory, if there]",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add bounds of earlier runs, as toolkit baseline writes them.  [default: baseline.yml beside the "
    "inventory, if there]",
)
@click.option(
    "--without",
    multiple=True,
    metavar="CRITERION",
    help="Leave out this criterion, such as pf.converged, which takes minutes; the verdict names it. Repeatable.",
)
@training_options
@launcher_options
@click.option("--resume", metavar="RUN", help="Continue this run; finished measurements are kept.")
@click.option("--rejudge", metavar="RUN", help="Judge this run again by today's criteria; no node is touched.")
@click.option("--dry-run", is_flag=True, help="Print the plan and its estimate, and touch no node.")
@click.option(
    "--summary", is_flag=True, help="Print rounds and minutes of each kind alone, with --dry-run; for large fleets."
)
@format_option()
@details_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout: the verdict, or the plan.")
@runs_dir_option
@click.pass_context
def validate(ctx: click.Context, /, **given: Any) -> None:
    """Measure a site, judge it, and write the report.

    The plan is written before anything runs, every result as soon as it is there, and nothing passes that was not
    measured. Virtual nodes give a REHEARSAL, never an acceptance.

    \b
    toolkit validate --fabric tcp10                 the virtual lab
    toolkit validate --fabric roce40 -i inventories/site --profile network
    toolkit validate --fabric tcp10 --suite transport    only the network
    toolkit validate --fabric tcp10,roce40          two runs, and a page with both
    toolkit validate --fabric tcp10 --dry-run       what, and how long it takes
    toolkit validate --resume RUN                   after an interruption
    toolkit validate --here                         this machine, no inventory
    \f

    \b
    toolkit validate --fabric tcp10 --suite remoting         GPUs over the network; wants the GPU servers to itself
    toolkit validate --suite training --models resnet50,vgg16 --batch 64,128 --gpus 1,8,16
    toolkit validate --suite training --long --data /data/imagenet --checkpoints /data/ckpt
    toolkit validate --fabric roce400 -i fleet --dry-run --summary   a few lines, of thousands of nodes
    toolkit validate --rejudge RUN --waivers waivers.yml     after the customer has decided
    toolkit validate --fabric roce40 -i inventories/site --baseline good.yml
    toolkit validate --fabric tcp10 --json | jq .sign_off
    toolkit validate --fabric tcp10 --format json            no PDF, which takes ten seconds, and no page
    toolkit validate --here --suite burn-in --minutes 60     its GPUs under load for an hour
    toolkit validate --fabric tcp10 --soak 24h               GPUs, fabric and storage for a day; --resume goes on
    toolkit validate --fabric roce100 --launcher slurm --slurm='-p gpu'
    toolkit validate --here --suite remoting                 its GPU natively, and over links made on itself

    The long test trains by the schedule of the reference architecture and predicts its hours first. A checkpoint is
    written about every ten minutes and after each epoch: the same command, or --resume RUN, goes on from there. Its
    folders have to be volumes of the training container: docs/how-to/training-long.md.
    """
    from toolkit.validate.modes import carry_out  # only here: what measures and judges is slow to load

    carry_out(request_of(given, ctx.get_parameter_source("inventory") is ParameterSource.COMMANDLINE))


def request_of(given: Mapping[str, Any], inventory_given: bool) -> ValidateRequest:
    """The request that the command line's values make."""
    own = {key: value for key, value in given.items() if key not in (*OPTIONS, "long_test", "formats", "as_json")}
    output = Output(given["formats"], given["as_json"], details())
    return ValidateRequest(**own, training=training_request(given), output=output, inventory_given=inventory_given)
