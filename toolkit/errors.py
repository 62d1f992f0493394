"""Errors that a person caused and can correct: one line, exit code 2."""

from __future__ import annotations

from typing import IO, Any

import click

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class UsageFault(click.ClickException):
    """An input that cannot be used, or a state in which the command makes no sense. Says what to do next."""

    exit_code = EXIT_USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `error: message` on stderr."""
        click.echo(f"error: {self.format_message()}", file=file, err=file is None)
