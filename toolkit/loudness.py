"""How much a command says beside its answer: -q hides progress, -v shows what is run, read and written, and tracebacks.

`progress()` is for words that tell that something goes on; answers, errors and notes that change what somebody does
next do not pass through here, so -q never hides them. Standard library and click only: machines of the pool import it.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import click

_READ = (".yml", ".yaml", ".json", ".jsonl", ".cfg", ".conf", ".ini")
"""Files of these kinds are named when they are read; libraries open thousands of others."""


class _Chosen:
    quiet = False
    verbose = False
    hooked = False
    busy = False


_CHOSEN = _Chosen()


def reset() -> None:
    """As without options; each command line begins so."""
    _CHOSEN.quiet = _CHOSEN.verbose = False


def choose(quiet: bool = False, verbose: bool = False) -> None:
    """What the options say; they add up over a group and its commands. click.UsageError where they contradict."""
    _CHOSEN.quiet |= quiet
    _CHOSEN.verbose |= verbose
    if _CHOSEN.quiet and _CHOSEN.verbose:
        reset()
        raise click.UsageError("--quiet and --verbose exclude each other; give one of them")
    if _CHOSEN.verbose and not _CHOSEN.hooked:
        _CHOSEN.hooked = True  # a hook stays for the life of the process, and does nothing while nobody asks
        sys.addaudithook(_seen)


def quiet() -> bool:
    """Whether progress is to be hidden."""
    return _CHOSEN.quiet


def verbose() -> bool:
    """Whether more is to be shown."""
    return _CHOSEN.verbose


def progress(words: str) -> None:
    """A line of progress on stderr, none with --quiet."""
    if not _CHOSEN.quiet:
        click.echo(words, err=True)


def detail(words: str) -> None:
    """A line on stderr with --verbose alone; what looks like a secret in it is not shown."""
    if _CHOSEN.verbose:
        from validation.base.secret_words import hidden_text  # here, for a help need not wait for its patterns

        click.echo(hidden_text(words), err=True)


def ran(command: Iterable[str]) -> None:
    """The same of a command that is run."""
    if _CHOSEN.verbose:
        from validation.base.secret_words import hidden_words

        detail(f"  runs {shlex.join(hidden_words(command))}")


def progress_stream() -> IO[Any]:
    """Where progress is drawn: stderr, or nowhere."""
    return _Nowhere() if _CHOSEN.quiet else sys.stderr


class _Nowhere(io.StringIO):
    """A stream that is no terminal and keeps nothing."""

    def write(self, text: str) -> int:
        """Forget it."""
        return len(text)


def _seen(event: str, args: tuple[Any, ...]) -> None:
    """Say what the process does, from Python's own audit events. It may never fail, and never speaks of itself."""
    if not _CHOSEN.verbose or _CHOSEN.busy or event not in ("subprocess.Popen", "open", "os.rename"):
        return
    _CHOSEN.busy = True
    try:
        words = _words(event, args)
        if words:
            detail(f"  {words}")
    except Exception:  # noqa: S110 - what is only told may not end what is done
        pass
    finally:
        _CHOSEN.busy = False


def _words(event: str, args: tuple[Any, ...]) -> str:
    if event == "subprocess.Popen":
        from validation.base.secret_words import hidden_words

        command = args[1] if isinstance(args[1], (list, tuple)) else [args[0]]
        return f"runs {shlex.join(hidden_words(os.fsdecode(word) for word in command))}"
    if event == "os.rename":
        return f"writes {os.fspath(args[1])}"
    path, mode = args[0], args[1]
    if not isinstance(path, (str, os.PathLike)) or not isinstance(mode, str):
        return ""
    name = os.fspath(path)
    if name.startswith(("/dev/", "/proc/", "/sys/")) or Path(name).name.startswith("."):
        return ""
    if any(letter in mode for letter in "wax"):
        return f"writes {name}"
    return f"reads {name}" if name.endswith(_READ) else ""
