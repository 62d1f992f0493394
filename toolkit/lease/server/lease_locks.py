"""Start and end of one lease exclude each other: Prolog, Epilog, sweep and administrators take turns. Nobody waits for
ever: who has a lock and was stopped in the middle is made to go on, and who keeps it all the same is named."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from toolkit.lease import LeaseError
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.processes import PROC, read
from toolkit.lease.server.journal import tell

FOLDER = "lease-turns"
WAIT_S = 60.0
#: For the ports and shares of a server, which are given out in seconds.
LOCK_S = 45.0


class Busy(LeaseError):
    """The lease is being started or ended by another program."""


def _holder(handle: IO[str]) -> int:
    """Who has the lock of this file, by its number; 0 where the kernel does not say."""
    seen = os.fstat(handle.fileno())
    which = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    with suppress(OSError):
        for line in (PROC / "locks").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == which and words[4].isdigit():
                return int(words[4])
    return 0


def _stopped(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def lock(host: Host, handle: IO[str], what: str, wait_s: float) -> None:
    """Lock an open file; Busy, with who has it, where somebody keeps it for longer than `wait_s`."""
    until = host.clock.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            pid = _holder(handle)
            if pid and _stopped(pid):
                tell(f"{what}: process {pid} was stopped in the middle, and is made to go on")
                with suppress(OSError):
                    os.kill(pid, signal.SIGCONT)
            if host.clock.monotonic() >= until:
                who = read(pid) if pid else None
                raise Busy(f"{what}: {who.told() if who else 'another program'} is at it") from None
        host.clock.sleep(0.05)


@contextmanager
def locked(host: Host) -> Iterator[None]:
    """One at a time on this server: ports and shares are given out."""
    host.run_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    with (host.run_dir / ".lock").open("w") as handle:
        lock(host, handle, "ports and shares of this server", LOCK_S)
        yield


@contextmanager
def turn(host: Host, job: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Nobody else starts or ends this lease meanwhile; Busy where somebody does for longer than `wait_s`."""
    folder = host.run_dir.with_name(FOLDER)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, until = folder / job, host.clock.monotonic() + wait_s
    while True:
        with path.open("w") as handle:
            lock(host, handle, f"start or end of the lease of job {job}", until - host.clock.monotonic())
            if path.exists() and os.fstat(handle.fileno()).st_ino == path.stat().st_ino:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)  # who waits for it sees that it is another one
                return
