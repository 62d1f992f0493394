"""What commands print: nothing that came from a node, a file or a stranger can do more on a terminal than be read.

`shown()` puts itself in place of stdout and stderr while a command runs, so that every print goes through one place;
`console()` is the rich console that belongs to it, which alone may move the cursor. Bytes that are handed on on purpose
(`sys.stdout.buffer`, a program's own streams) do not pass through here. Standard library only: machines of the pool
import it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from validation.visible import visible_lines

if TYPE_CHECKING:
    from rich.console import Console


class Shown:
    """A text stream that writes out what could not be seen."""

    def __init__(self, stream: IO[str]) -> None:
        """`stream` is where it goes."""
        self._stream = stream

    @property
    def rich_proxied_file(self) -> IO[str]:
        """What rich writes to: `console()` has looked at each text by then, and the rest are its own signs."""
        return self._stream

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
    sys.stdout, sys.stderr = (one if isinstance(one, Shown) or one is None else Shown(one) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@cache
def _kind() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        """Of each piece that it draws the text is looked at; what moves the cursor are pieces of rich's own."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for piece in super().render(renderable, options):
                yield piece if piece.control else Segment(visible_lines(piece.text), piece.style)

        def render_str(self, text: str, **how: Any) -> Any:
            return super().render_str(visible_lines(text), **how)

    return Plain


def console(file: IO[Any] | None = None, **options: Any) -> Console:
    """A rich console on `file` (None = stdout). Brackets in a text are brackets: nothing in it is markup."""
    made: Console = _kind()(file=file, markup=False, emoji=False, highlight=False, **options)
    return made
