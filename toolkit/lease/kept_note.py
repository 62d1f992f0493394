"""What a command that goes on alone reports to the supervisor that keeps it (package kept): the number of its lease.

A command that nobody keeps reports to nobody.
"""

from __future__ import annotations

import os
from contextlib import suppress

#: Names an open descriptor. The command takes it out of its environment at once, so that its program never has it.
VARIABLE = "ELASTIC_AI_KEPT_FD"


class _Supervisor:
    descriptor: int | None = None


_SUPERVISOR = _Supervisor()


def kept() -> bool:
    """Whether this command is kept already, so that its --detach is done."""
    word = os.environ.pop(VARIABLE, "")
    if word.isascii() and word.isdigit():
        _SUPERVISOR.descriptor = int(word)
        os.set_inheritable(int(word), False)
    return _SUPERVISOR.descriptor is not None


def _note(line: str) -> None:
    if kept() and _SUPERVISOR.descriptor is not None:
        with suppress(OSError):  # the supervisor is gone, and this command ends soon
            os.write(_SUPERVISOR.descriptor, f"{line}\n".encode())


def note_lease(lease: int) -> None:
    """This is the lease from now on."""
    _note(f"lease {lease}")


def note_held(lease: int) -> None:
    """The same of a lease that was there before, and stays."""
    _note(f"held {lease}")


def note_running() -> None:
    """The lease is there, and its program starts."""
    _note("running")
