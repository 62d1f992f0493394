"""TERM as Ctrl-C, for commands that take back what they did before they end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def term_as_ctrl_c() -> Iterator[None]:
    """While it lasts, TERM raises KeyboardInterrupt, so that nothing stays planted or running."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
