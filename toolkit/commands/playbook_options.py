"""The options that `toolkit deploy` and `toolkit teardown` have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from toolkit.lab.spec import LAB


def playbook_options(verb: str, own: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Inventory, limit and check mode, of which the command gets one DeployRequest; `own`: the command's own option,
    `verb`: what it does to nodes.
    """
    options: tuple[Callable[..., Any], ...] = (
        click.option(
            "-i",
            "--inventory",
            type=click.Path(path_type=Path),
            help=f"Read this Ansible inventory, a folder or a file.  [default: {LAB}]",
        ),
        click.option(
            "--limit",
            metavar="NODES",
            help=f"{verb} only these nodes, as ansible-playbook takes them: gpu3,head or '!gpu2'.",
        ),
        click.option(
            "--check",
            "--dry-run",
            "check",
            is_flag=True,
            help="Show what would change, by Ansible's check mode; change nothing.",
        ),
        own,
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document on stdout: what was done to each node."
        ),
        click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED),
    )

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def asked(**given: Any) -> None:
            from toolkit.deploy.carried_out import DeployRequest  # only here: what runs Ansible is slow to load

            request = DeployRequest(**{one.name: given.pop(one.name) for one in fields(DeployRequest)})
            command(request, **given)

        made: Callable[..., None] = asked
        for option in reversed(options):
            made = option(made)
        return made

    return with_options
