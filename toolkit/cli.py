"""The command line: one click group; each command lives in a module of `toolkit.commands`."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from toolkit import command_table, completion
from toolkit.entry import ToolkitGroup, start

NARROW = 64
"""Columns below which the groups stand above their commands and not beside them."""


class LazyGroup(ToolkitGroup):
    """A group that imports a command only when it is called. Its own help and completion come from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return command_table.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None when there is no such name."""
        if cmd_name not in command_table.names():
            return None
        command = getattr(importlib.import_module(f"toolkit.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Commands and options that begin so."""
        from click.shell_completion import CompletionItem

        found = [name for name in command_table.names() if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=command_table.words(name)) for name in found]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage, then the commands by their groups, then the options; one screen."""
        self.format_usage(ctx, formatter)
        formatter.write(f"{self.help}\n")
        formatter.write_paragraph()
        if formatter.width >= NARROW:
            self._beside(formatter)
        else:
            self._above(formatter)
        formatter.write_paragraph()
        records = [record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None]
        (_, version), *others, (name, words) = records  # one line for two, for the screen is full
        formatter.write_dl([*others, (name, f"{words.rstrip('.')}; --version: {version.lower()}")])

    @staticmethod
    def _beside(formatter: click.HelpFormatter) -> None:
        groups = command_table.COMMANDS
        titles = max(map(len, (*groups, command_table.START[0]))) + 2
        commands = max(map(len, command_table.names())) + 2
        formatter.write(f"{command_table.START[0]:<{titles}}{command_table.START[1]}\n")
        for title, entries in groups.items():
            for number, (name, words) in enumerate(entries.items()):
                formatter.write(f"{'' if number else title:<{titles}}{name:<{commands}}{words}\n")

    @staticmethod
    def _above(formatter: click.HelpFormatter) -> None:
        for title, entries in command_table.COMMANDS.items():
            formatter.write_paragraph()
            formatter.write(f"{title}:\n")
            with formatter.indentation():
                formatter.write_dl(list(entries.items()))


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from toolkit.about import show

        show(ctx, param, asked)


@click.command(cls=LazyGroup, help="Provision racks as an elastic GPU infrastructure, measure them, sign them off.")
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
)
def cli() -> None:
    """All commands."""


def main() -> None:
    """Entry point."""
    if "_TOOLKIT_COMPLETE" in os.environ:
        completion.register()
    start(cli)
