"""How `toolkit logs` and `toolkit attach` print: bytes to a file or program, text to a terminal."""

from __future__ import annotations

import sys

import click

from toolkit.lease import Exit
from toolkit.lease.kept.output import ForTerminal


class Output:
    """stdout. A terminal gets text and colours, and nothing that moves its cursor or changes its settings."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self._terminal = ForTerminal() if sys.stdout.isatty() else None

    def write(self, data: bytes) -> None:
        """A piece."""
        self._write(data if self._terminal is None else self._terminal.text(data).encode())

    def end(self) -> None:
        """No more comes."""
        if self._terminal is not None:
            self._write(self._terminal.text(b"", last=True).encode())

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def leave(lease: int, again: str) -> int:
    """Ctrl-C: the program goes on. The exit code, which is none of the program's."""
    click.echo(f"\nlease {lease} goes on; toolkit {again} {lease} follows it again", err=True)
    return int(Exit.INTERRUPTED)
