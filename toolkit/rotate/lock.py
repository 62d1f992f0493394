"""One rotation of a site at a time from this machine."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from toolkit.errors import UsageFault


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """UsageFault while another has it; one that was killed holds nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".rotate.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageFault("another toolkit rotate of this site is at work; wait for its end") from None
        yield
