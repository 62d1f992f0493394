"""What this toolkit is: version, where its files are, and what it runs by. For `toolkit --version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from validation.base import project
from validation.rules.release import release


def lines() -> list[str]:
    """The version alone on the first line, for scripts; then what somebody who helps has to know."""
    commit, modified = project.commit()
    changed = " with changes that were not committed" if modified else ""
    of = f", commit {commit[:12]}{changed}" if commit else ", commit not known"
    place = "checkout" if project.is_checkout() else "installed"
    try:
        ansible = f"ansible-core {version('ansible-core')}"
    except PackageNotFoundError:
        ansible = "no ansible-core in this Python"
    return [
        f"toolkit, version {release()}",
        f"{place}: {project.ROOT}{of}",
        f"Python {platform.python_version()}, {ansible}",
    ]


def show(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    """The callback of `--version`."""
    if asked and not ctx.resilient_parsing:
        click.echo("\n".join(lines()))
        ctx.exit()
