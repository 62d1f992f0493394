"""Signals that end a command, for commands that take back what they did before they end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What ends a command beside Ctrl-C: a scheduler or systemd, and a terminal that is closed."""


@contextlib.contextmanager
def term_as_ctrl_c() -> Iterator[None]:
    """While it lasts, TERM and HUP raise KeyboardInterrupt, so that nothing stays planted or running. What is ignored
    stays so: nohup wants to be left alone.
    """

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    wanted = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """INT, TERM and HUP that come meanwhile act at the end of it.

    Round the start of a process and the note of it: an interrupt between the two leaves a process that nobody knows,
    and nobody ends. Round the end of processes too, so that a second Ctrl-C does not leave some of them.
    """
    came: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        came.append(number)

    # What is ignored or ends the process without a word of Python stays as it is.
    before = {number: handler for number in (signal.SIGINT, *_ENDING) if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, later)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in dict.fromkeys(came):
            signal.raise_signal(one)
