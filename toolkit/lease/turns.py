"""Start and end of one lease exclude each other: Prolog, Epilog, sweep and administrators take turns."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from toolkit.lease import LeaseError
from toolkit.lease.host import Host

FOLDER = "lease-turns"
WAIT_S = 60.0


class Busy(LeaseError):
    """The lease is being started or ended by another program."""


@contextmanager
def turn(host: Host, job: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Nobody else starts or ends this lease meanwhile; Busy where somebody does for longer than `wait_s`."""
    folder = host.run_dir.with_name(FOLDER)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, until = folder / job, host.clock.monotonic() + wait_s
    while True:
        with path.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if host.clock.monotonic() >= until:
                    raise Busy(f"lease of job {job}: another program starts or ends it") from None
            else:
                if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                    try:
                        yield
                    finally:
                        path.unlink()  # who waits for it sees that it is another one
                    return
                continue
        host.clock.sleep(0.05)
