"""What is being done, said while it takes long: a line at the bottom of a terminal, else a line every 15 seconds.

`python3 -m toolkit.lab.image` runs before anything is installed, so this needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from validation.base.errors import ToolkitError

EVERY_S = 15.0
"""Without a terminal: as long as this between two lines of progress, no more and, while something runs, no less."""
SHOWN_S = 1.0
"""How often a terminal shows it anew; what takes less is not shown."""


def duration(seconds: float) -> str:
    """`8s`, `1m10s`, `2h05m`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Pace:
    """When a line of progress is due: one at once, then one after each EVERY_S."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` in seconds."""
        self._now = now
        self._last: float | None = None

    @property
    def due(self) -> bool:
        """Whether the last line is long enough ago."""
        return self._last is None or self._now() - self._last >= EVERY_S

    def said(self) -> None:
        """A line was printed."""
        self._last = self._now()


class Working:
    """Something that takes its time, and since when. `say` prints a line that stays and is what is being done now."""

    def __init__(self, what: str, out: IO[str], now: Callable[[], float] = time.monotonic) -> None:
        """`out` is where it is shown; `now` in seconds."""
        self._what, self._out, self._now = what, out, now
        self._plain: IO[str] = getattr(out, "rich_proxied_file", out)  # which may move the cursor
        self._terminal = out.isatty()
        self._since = now()
        self._pace = Pace(now)
        self._pace.said()
        self._drawn = False
        self._lock = threading.Lock()

    def now(self, what: str) -> None:
        """From here on this is done."""
        with self._lock:
            self._what, self._since = what, self._now()

    def say(self, text: str) -> None:
        """Print a line at once; what follows is said to be it."""
        with self._lock:
            self._clear()
            self._print(text)
            self._what, self._since = text.partition("\n")[0], self._now()

    def tick(self) -> None:
        """Show how long it takes, where that is due."""
        with self._lock:
            words = f"{self._what}, {duration(self._now() - self._since)}"
            if self._terminal:
                with contextlib.suppress(OSError, ValueError, ToolkitError):
                    self._plain.write(f"\r\x1b[2K{words[: self._columns()]}")
                    self._plain.flush()
                    self._drawn = True
            elif self._pace.due:
                self._print(words)

    def close(self) -> None:
        """Take away what a terminal shows."""
        with self._lock:
            self._clear()

    def _columns(self) -> int:
        import shutil

        return max(20, shutil.get_terminal_size().columns) - 1

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError, ToolkitError):  # nobody looks any more
            self._out.write(f"{text}\n")
            self._out.flush()
        self._pace.said()

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = False
            with contextlib.suppress(OSError, ValueError, ToolkitError):
                self._plain.write("\r\x1b[2K")
                self._plain.flush()


@contextlib.contextmanager
def working(what: str, out: IO[str] | None = None) -> Iterator[Working]:
    """While it lasts, stderr (or `out`) says `what` and for how long, unless --quiet hides progress. Print nothing else
    there but by its `say`.
    """
    if out is None:
        from toolkit.loudness import progress_stream  # which needs click

        out = progress_stream()
    shown = Working(what, out)
    over = threading.Event()

    def look() -> None:
        while not over.wait(SHOWN_S):
            shown.tick()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        over.set()
        thread.join()
        shown.close()
