"""How a command line of the toolkit starts and ends: on the machine that provisions, and on machines of the pool."""

from __future__ import annotations

import gc
import sys
import traceback
from pathlib import Path
from typing import IO, Any

import click

from toolkit import loudness
from toolkit.command_class import Group
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.needs import told
from toolkit.streams import flushed, shown
from validation.base.errors import ToolkitError

COLLECTOR = (100_000, 20, 100)
"""Thresholds of the garbage collector. A run's documents are hundreds of thousands of objects that live as long as the
process and have no cycles: with Python's own thresholds, looking through them takes a third of the time to judge them.
"""

_SHOWN = 200  # characters of an unexpected error in its line


class Refused(click.ClickException):
    """A ToolkitError for click: `error: message` on stderr, and its exit code."""

    def __init__(self, fault: ToolkitError) -> None:
        """Its words and its code."""
        super().__init__(str(fault))
        self.exit_code = fault.code  # type: ignore[misc]  # what click reads

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `error: message` on stderr."""
        first, *more = self.format_message().split("\n")
        # what follows the first line is indented, so that no name with a line break in it says something by itself
        lines = [f"error: {first}", *(line if line.startswith("  ") or not line else f"  {line}" for line in more)]
        click.echo("\n".join(lines), file=file, err=file is None)


class ToolkitGroup(Group):
    """All commands of a program. Their known errors are one line on stderr, and their exit code; what they print can
    only be read.
    """

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command line."""
        loudness.reset()
        with shown():
            return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ToolkitError as fault:
            loudness.detail(traceback.format_exc().rstrip())
            raise Refused(fault) from None
        except BrokenPipeError as fault:
            # of a program or node that we wrote to, for our own streams survive their readers (toolkit/streams.py);
            # click would end with 1 without a word
            raise RuntimeError(f"{type(fault).__name__}: {fault}") from fault
        except OSError:
            if words := no_folder():
                raise Refused(UsageFault(words)) from None
            raise


def no_folder() -> str:
    """What is wrong with the folder in which a command runs, as after `su` in somebody's home; "" where nothing is."""
    try:
        here = Path.cwd()
    except OSError:
        return "the folder in which this runs does not exist any more; change to another one first, such as: cd ~"
    try:
        Path().stat()
    except OSError as fault:
        why = fault.strerror or fault
        return f"{here}: this user cannot enter the folder in which this runs ({why}); change to another one: cd ~"
    return ""


def start(commands: click.Command) -> None:
    """Entry point of a program: runs the command line and ends the process with an exit code of toolkit/exits.py."""
    gc.set_threshold(*COLLECTOR)
    with shown():
        _end(commands)


def _end(commands: click.Command) -> None:
    try:
        try:
            code = commands.main(prog_name="toolkit", standalone_mode=False)
        finally:
            flushed()
        if isinstance(code, int):
            sys.exit(code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(Exit.INTERRUPTED)
    except click.ClickException as fault:
        fault.show()
        sys.exit(fault.exit_code)
    except ToolkitError as fault:  # from outside a command: --help that cannot be written
        Refused(fault).show()
        sys.exit(fault.code)
    except Exception as fault:
        if isinstance(fault, ImportError) and (words := told(fault)):
            click.echo(f"error: {words}", err=True)
            sys.exit(Exit.USAGE)
        loudness.detail(traceback.format_exc().rstrip())
        click.echo(unexpected(fault), err=True)
        sys.exit(Exit.INTERNAL)


def unexpected(fault: Exception) -> str:
    """One line on an error that nobody foresaw, and where its traceback is: in a file that its user alone can read.

    Python would end with 1, which a script takes for a verdict. Where no file can be written, the traceback follows.
    """
    said = " ".join(f"{type(fault).__name__}: {fault}".split())
    words = f"error: unexpected {said[:_SHOWN]}{'...' if len(said) > _SHOWN else ''}; this is a defect of the toolkit"
    trace = "".join(traceback.format_exception(type(fault), fault, fault.__traceback__))
    import tempfile  # here, for nothing else of a command line needs it

    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", prefix="toolkit-error-", suffix=".txt", delete=False
        ) as file:
            file.write(trace)
    except OSError:
        return f"{words}:\n{trace}"
    return f"{words}: report it with {file.name}"
