"""Options that several commands have, each with one name, one default and one help text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from toolkit.answers import json_option as json_option
from toolkit.errors import UsageFault
from toolkit.lab.spec import LAB

F = TypeVar("F", bound=Callable[..., object])


def _lab_inventory() -> Path:
    from toolkit.lab_inventory import lab_inventory  # only here: no help page needs the documents of an inventory

    return lab_inventory()


inventory_option = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    default=_lab_inventory,
    show_default=str(LAB),
    help="Read this Ansible inventory, a folder or a file.",
)


def _there(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    """A folder that the caller named is mistyped where it is missing; the default one comes with the first run."""
    given = ctx.get_parameter_source(param.name or "") != click.core.ParameterSource.DEFAULT
    if given and not ctx.resilient_parsing and not value.exists():
        raise UsageFault(f"--runs-dir {value}: no such folder; name the one that toolkit validate keeps its runs in")
    return value


_RUNS_DIR: dict[str, Any] = {
    "type": click.Path(path_type=Path, file_okay=False),
    "default": Path("runs"),
    "show_default": True,
}
runs_dir_option = click.option("--runs-dir", **_RUNS_DIR, help="Keep and look up runs in this folder.")
kept_runs_option = click.option("--runs-dir", **_RUNS_DIR, callback=_there, help="Look up runs in this folder.")
_DETAILS = "toolkit.details"


def _keep(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_DETAILS] = value


def details_option(command: F) -> F:
    """--details, which what prints the verdict asks for by `details()`."""
    words = "Print the whole table of criteria above the verdict."
    return click.option("--details", is_flag=True, expose_value=False, callback=_keep, help=words)(command)


def details() -> bool:
    """Whether the command that runs was given --details."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx is not None and ctx.meta.get(_DETAILS))


def launcher_options(command: F) -> F:
    """How the nodes are reached."""
    options = (
        click.option(
            "--launcher",
            type=click.Choice(["ssh", "slurm"]),
            default="ssh",
            show_default=True,
            help="Reach the nodes by ssh, or by slurm: all GPU servers in one job, each measurement a step of it.",
        ),
        click.option(
            "--slurm",
            default="",
            metavar="OPTIONS",
            help="Pass these options to salloc, with --launcher slurm, as '-p gpu -A project -t 90'.",
        ),
        click.option(
            "--slurm-wait",
            type=click.IntRange(1),
            metavar="MIN",
            help="Wait at most this long for the job, with --launcher slurm.  [default: 10]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
