"""The command line: one click group; each command lives in a module of `toolkit.commands`."""

from __future__ import annotations

import importlib

import click

from toolkit.about import show
from toolkit.entry import ToolkitGroup, start
from toolkit.exits import epilogue

#: command -> (module, attribute); imported when used, so that `toolkit lab` does not wait for the engine
COMMANDS = {
    "baseline": ("toolkit.commands.baseline", "baseline"),
    "bundle": ("toolkit.commands.bundle", "bundle"),
    "check": ("toolkit.commands.check", "check"),
    "compare": ("toolkit.commands.compare", "compare"),
    "criteria": ("toolkit.commands.criteria", "criteria"),
    "deploy": ("toolkit.commands.deploy", "deploy"),
    "engine": ("toolkit.commands.engine", "engine"),
    "fabrics": ("toolkit.commands.fabrics", "fabrics"),
    "gpus": ("toolkit.commands.gpus", "gpus"),
    "inventory": ("toolkit.commands.inventory", "inventory"),
    "judge": ("toolkit.commands.judge", "judge"),
    "lab": ("toolkit.commands.lab", "lab"),
    "lease": ("toolkit.commands.lease", "lease"),
    "narrow": ("toolkit.commands.narrow", "narrow"),
    "node": ("toolkit.commands.node", "node"),
    "profiles": ("toolkit.commands.profiles", "profiles"),
    "claims": ("toolkit.commands.claims", "claims"),
    "report": ("toolkit.commands.report", "report"),
    "run": ("toolkit.commands.run", "run"),
    "runs": ("toolkit.commands.runs", "runs"),
    "sign": ("toolkit.commands.sign", "sign"),
    "teardown": ("toolkit.commands.teardown", "teardown"),
    "trend": ("toolkit.commands.trend", "trend"),
    "validate": ("toolkit.commands.validate", "validate"),
    "verify": ("toolkit.commands.verify", "verify"),
}


class LazyGroup(ToolkitGroup):
    """A group that imports a command only when it is named (or all of them for --help)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None when there is no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=LazyGroup, epilog=epilogue("validate"))
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=show, help="Show the version and exit."
)
def cli() -> None:
    """Provision elastic AI infrastructure, measure it, and sign it off.

    \b
    A rehearsal on one Linux machine:
      toolkit lab up
      toolkit deploy
      toolkit validate --fabric tcp10
      toolkit report
      toolkit sign --key ~/.ssh/id_ed25519 --as "NAME, COMPANY"
      toolkit bundle

    Shell completion: eval "$(_TOOLKIT_COMPLETE=bash_source toolkit)" (or zsh_source, fish_source).
    """


def main() -> None:
    """Entry point."""
    start(cli)
