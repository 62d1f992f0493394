"""What commands print: nothing that came from a node, a file or a stranger can do more on a terminal than be read.

`shown()` puts itself in place of stdout and stderr while a command runs, so that every print goes through one place;
`console()` is the rich console that belongs to it, which alone may move the cursor. Bytes that are handed on on purpose
(`sys.stdout.buffer`, a program's own streams) do not pass through here. Standard library only: machines of the pool
import it.

A reader that goes away early (`| head -1`) ends nothing: what is written from then on goes nowhere, and the command
ends with its own exit code.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from toolkit.errors import UsageFault
from validation.base.visible import visible_lines

if TYPE_CHECKING:
    from rich.console import Console

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Patient:
    """A stream, of texts or of bytes, that survives its reader; UsageFault where it cannot be written (a full disk)."""

    def __init__(self, stream: IO[Any], name: str) -> None:
        """`stream` is where it goes; `name` is what it is called in an error, "" where there is no way to say one."""
        self._stream, self._name, self._lost = stream, name, ""

    def write(self, what: Any) -> int:
        """Write it, or nothing where nobody reads any more."""
        with self._kept():
            self._stream.write(what)
        return len(what)

    def flush(self) -> None:
        """Hand on what is held back."""
        with self._kept():
            self._stream.flush()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        if not self._lost:
            try:
                yield
            except OSError as fault:
                if fault.errno not in (errno.EPIPE, *FULL):
                    raise
                gone = fault.errno == errno.EPIPE or self._hung_up(fault)
                # what the stream still holds would be tried again when Python ends, and change the exit code
                self._to_nowhere()
                if not gone and self._name:
                    self._lost = f"{self._name} cannot be written: {fault.strerror}"
        if self._lost:  # said by each that writes, for who tries first may pass over it
            raise UsageFault(self._lost)

    def _hung_up(self, fault: OSError) -> bool:
        """Whether it was a terminal, which is gone: that is a reader, and no disk."""
        return fault.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode)

    def _to_nowhere(self) -> None:
        """Put nothing in the place of the reader that is gone."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a stream has is the stream's."""
        return getattr(self._stream, name)


class Shown:
    """A text stream that writes out what could not be seen."""

    def __init__(self, stream: IO[str], name: str = "") -> None:
        """As of Patient."""
        self._stream: Any = Patient(stream, name)
        self._name = name

    @property
    def rich_proxied_file(self) -> IO[str]:
        """What rich writes to: `console()` has looked at each text by then, and the rest are its own signs."""
        patient: IO[str] = self._stream
        return patient

    @property
    def buffer(self) -> Patient:
        """For bytes that are handed on on purpose."""
        return Patient(self._stream.buffer, self._name)

    def flush(self) -> None:
        """Hand on what is held back."""
        self._stream.flush()

    def write(self, text: str) -> int:
        """Write a text as it may be seen."""
        if not isinstance(text, str):  # click asks in this way whether a stream is one of bytes
            raise TypeError(f"a text is wanted, not {type(text).__name__}")
        self._stream.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a stream has is the stream's."""
        return getattr(self._stream, name)


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """While it lasts, stdout and stderr show and do nothing else."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        one if isinstance(one, Shown) or one is None else Shown(one, name)
        for one, name in zip(before, ("the standard output", ""))  # noqa: B905 - Python 3.9
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def flushed() -> None:
    """Hand on what stdout and stderr hold back, while somebody can still say that it cannot be done."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


WIDTH = 100
"""Columns where nobody says how many there are: in a pipe, in a file."""
NARROWEST = 20


def columns(file: IO[Any] | None = None) -> int:
    """How wide lines are on `file` (None = stdout): COLUMNS, else the terminal's width, else WIDTH."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return max(NARROWEST, int(given))
    try:
        return max(NARROWEST, os.get_terminal_size((file or sys.stdout).fileno()).columns or WIDTH)
    except (AttributeError, OSError, ValueError):
        return WIDTH


@cache
def _kind() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        """Of each piece that it draws the text is looked at; what moves the cursor are pieces of rich's own. No line
        ends with blanks, and with NO_COLOR in the environment no text has a style.
        """

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            plain = bool(os.environ.get("NO_COLOR"))
            blank: list[Segment] = []  # what may be the end of a line
            for piece in super().render(renderable, options):
                if piece.control:
                    yield from blank
                    blank = []
                    yield piece
                    continue
                for part in visible_lines(piece.text).splitlines(keepends=True):
                    text = part.rstrip(" \n")
                    ends = part.endswith("\n")
                    style = None if plain else piece.style
                    if text:
                        yield from blank
                        blank = []
                        yield Segment(text, style)
                    if ends:
                        blank = []
                        yield Segment("\n")
                    elif len(part) > len(text):
                        blank.append(Segment(part[len(text) :], style))

        def render_str(self, text: str, **how: Any) -> Any:
            return super().render_str(visible_lines(text), **how)

    return Plain


def _width(file: IO[Any] | None) -> int | None:
    """None where rich follows the terminal's own width while it draws."""
    out = file or sys.stdout
    return None if out.isatty() and not os.environ.get("COLUMNS") else columns(out)


def console(file: IO[Any] | None = None, **options: Any) -> Console:
    """A rich console on `file` (None = stdout). Brackets in a text are brackets: nothing in it is markup."""
    if "width" not in options:
        options["width"] = _width(file)
    # rich would read COLUMNS and LINES by itself, and fail where they are no numbers
    options["_environ"] = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    made: Console = _kind()(file=file, markup=False, emoji=False, highlight=False, **options)
    return made
