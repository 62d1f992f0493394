"""All commands, as the tests of help and of misspelt names go through them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import click
from click.testing import CliRunner, Result

from toolkit.cli import cli

SCREEN, WIDE = 50, 80


def _tree(command: click.Command, ctx: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None, name
            yield from _tree(below, click.Context(below, parent=ctx, info_name=name), (*path, name))


@cache
def tree() -> dict[str, click.Command]:
    """Path -> command, the program itself by ""."""
    return dict(_tree(cli, click.Context(cli, info_name="toolkit"), ()))


PATHS = [path for path in tree() if path]


def toolkit(*words: str, columns: int = WIDE) -> Result:
    return CliRunner().invoke(cli, words, prog_name="toolkit", env={"COLUMNS": str(columns)})
