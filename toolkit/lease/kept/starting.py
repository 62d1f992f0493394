"""Having a command of the toolkit go on alone, and what its user sees of that: a few lines, and the next commands."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.display import table
from toolkit.lease.kept import folder, record, unit
from toolkit.lease.kept.afterwards import refuse_mail
from toolkit.lease.kept.output import Reader
from toolkit.lease.kept.record import Kept, Order
from toolkit.lease.machine.host import Host

#: A unit that is started takes its program's folder within this time.
TAKES_S = 20.0
LOOK_S = 0.1


@dataclass(frozen=True)
class Wish:
    """words: of the program, for people. then, mail: what is done when it has ended, "" for nothing. lease: that is
    there already, None for one of its own."""

    words: tuple[str, ...]
    then: str = ""
    mail: str = ""
    lease: int | None = None


def check(wish: Wish) -> None:
    """LeaseError for what cannot be had here, before anything is asked of anybody."""
    unit.refuse_missing()
    if wish.mail:
        refuse_mail(wish.mail)
    if wish.lease is not None and wish.lease in record.running():
        raise LeaseError(f"lease {wish.lease} already has a detached program: toolkit logs -f {wish.lease}")


def _this_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """`toolkit ARGUMENTS`, by the path of the one that runs."""
    program = Path(sys.argv[0])
    found = str(program.resolve()) if program.name == "toolkit" and os.access(program, os.X_OK) else None
    found = found or shutil.which("toolkit")
    if found is None:
        raise LeaseError("there is no toolkit command here that could go on alone")
    return (found, *arguments)


def _ended(path: Path) -> bool:
    try:
        return record.read(path).over
    except (OSError, LeaseError):
        return False  # of another release, or being made


def keep(wish: Wish, arguments: Sequence[str], say_raw: Callable[[bytes], None], program: str = "") -> Kept | int:
    """Start `toolkit ARGUMENTS` so that it goes on alone, and return as soon as it has its lease. Where it ends before
    that, nothing of it is left, and its exit code is returned. say_raw: for what it prints until then. program: in
    place of `toolkit`, which notes its lease in the same way."""
    check(wish)
    mask = os.umask(0o077)
    os.umask(mask)
    command = (program, *arguments) if program else _this_command(arguments)
    order = Order(
        command, wish.words, str(Path.cwd()), wish.then, wish.mail, record.this_machine(), mask,
        time.time(),
    )  # fmt: skip
    path = record.make(order, dict(os.environ))
    folder.prune(lambda one: one != path and _ended(one))
    try:
        unit.start(path.name)
    except BaseException:  # it may have been started all the same
        _end(path)
        raise
    try:
        return _until_leased(path, say_raw)
    except KeyboardInterrupt:
        _end(path)
        raise


def _end(path: Path) -> None:
    """Of a program that has no lease yet, and whose user wants it no more, or whose unit did not start it: whether its
    supervisor is at work or comes later, it gets no GPUs."""
    until = time.monotonic() + TAKES_S
    with suppress(OSError, LeaseError):  # it is gone
        while time.monotonic() < until:
            if record.withdraw(path):
                record.remove(path)
                return
            found = record.read(path)
            if found.status.state == "ended":
                return
            if found.lives and found.status.pid:
                with suppress(ProcessLookupError):
                    os.kill(found.status.pid, signal.SIGTERM)
                return
            time.sleep(LOOK_S)


def _until_leased(path: Path, say_raw: Callable[[bytes], None]) -> Kept | int:
    reader, until = Reader(path), time.monotonic() + TAKES_S
    while True:
        found = record.read(path)
        for data in reader.read():
            say_raw(data)
        if found.status.leases:
            return found
        if found.status.state == "ended":
            code, why = found.status.code, found.status.why
            record.remove(path)
            if why:
                raise LeaseError(why)
            return 1 if code is None else code
        if not found.lives and time.monotonic() > until:
            _end(path)
            raise LeaseError("the program was not started; the journal of this machine has the cause")
        time.sleep(LOOK_S)


def next_commands(kept: Kept) -> str:
    """What its user does next. On a lease that was there before, only the program is ended, by its supervisor."""
    lease = kept.status.lease
    ends = f"  kill {kept.status.pid}" if kept.status.held else f"  toolkit lease release {lease}"
    rows = [
        [f"  toolkit logs -f {lease}", "what it prints, also after a new login"],
        [f"  toolkit attach {lease}", "the same from now on; Ctrl-C leaves it running"],
        [ends, f"ends it; lease {lease} stays" if kept.status.held else "ends it"],
    ]
    return table(("", ""), rows).strip("\n")


def started_words(host: Host, kept: Kept) -> str:
    """Its lease, and whether it has its turn."""
    lease = kept.status.lease
    assert lease is not None
    try:
        turn = host.slurm.turn(lease) if kept.status.state == "waiting" else None
    except LeaseError:
        turn = None
    words = f"lease {lease}: "
    if turn is None or turn.place is None:
        return f"{words}goes on alone on {kept.order.host}"
    expected = f", expected {turn.start}" if turn.start else ""
    return f"{words}waits on {kept.order.host}, place {turn.place} in the queue{expected}"
