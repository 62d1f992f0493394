"""The supervisor of a program that goes on alone: runs the toolkit's command, keeps what it prints, notes how it ends.

It runs in the program's unit under its user's uid. Where what is printed cannot be written any more, the program and
its lease are ended, with that reason: hours of work whose result nobody could read are not paid for.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.lease import LeaseError, kept_note
from toolkit.lease.kept import afterwards, folder, unit
from toolkit.lease.kept.output import Log
from toolkit.lease.kept.record import Notes, Order, take_environment

#: Of a login that is over when the program goes on: folders that are removed with it, sockets, its terminal.
OF_LOGIN = (
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "STY", "TERM",
    "TMUX", "TMUX_PANE", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_VTNR",
)  # fmt: skip
#: A command that is asked to end, because its output cannot be kept, is killed after so long. By then its own program
#: was asked and killed (running.LOST_S, twice).
ENDS_S = 30.0
#: What was started by the program and still prints is not waited for any longer.
OUTLIVED_S = 2.0
RUNTIME = "/tmp"  # noqa: S108 - a new folder in it
_PIECE = 1 << 16
_NOTE = re.compile(rb"(lease|held) ([0-9]{1,10})|running")


def environment_of(users: dict[str, str], runtime: str) -> dict[str, str]:
    """The command's: its user's without their login's, with a folder for what is only here while it runs."""
    return {key: value for key, value in users.items() if key not in OF_LOGIN} | {"XDG_RUNTIME_DIR": runtime}


@contextmanager
def runtime_folder() -> Iterator[str]:
    """For this user alone, gone afterwards. Not in a private /dev/shm: containers mount folders of it by their path on
    the host. Its lock keeps it from being cleaned up as old: tmpfiles.d(5)."""
    path = tempfile.mkdtemp(prefix="elastic-ai-kept-", dir=RUNTIME)
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_SH)
        yield path
    finally:
        os.close(held)
        shutil.rmtree(path, ignore_errors=True)


class Supervisor:
    """Of one program."""

    def __init__(self, path: Path, runtime: str) -> None:
        """Take over its folder. runtime: what is gone with it. LeaseError or OSError where it is none."""
        self._command: subprocess.Popen[bytes] | None = None
        self._asked: int | None = None  # the signal by which it was asked to end
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._pass_on)
        self.order = Order.read(path)
        self.path, self.notes, self.log = path, Notes(path), Log(path)
        self.environment = environment_of(take_environment(path), runtime)
        self.fault = ""  # of what cannot be written
        self._kill_at = float("inf")
        self._noted = b""

    def _pass_on(self, number: int, _frame: object) -> None:
        self._asked = number
        if self._command is not None:
            self._command.send_signal(number)

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        """The command, and what it notes."""
        reads, writes = os.pipe()
        try:
            command = subprocess.Popen(
                self.order.command,
                cwd=self.order.directory,
                env={**self.environment, kept_note.VARIABLE: str(writes)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writes,),
                umask=self.order.umask,
            )
        except OSError as fault:
            raise LeaseError(f"{fault.filename or self.order.command[0]}: {fault.strerror}") from None
        finally:
            os.close(writes)
        return command, reads

    def _note(self, data: bytes) -> None:
        *lines, self._noted = (self._noted + data).split(b"\n")
        for match in filter(None, map(_NOTE.fullmatch, lines)):
            if match[1]:
                self.notes.lease(int(match[2]), held=match[1] == b"held")
            else:
                self.notes.change(state="running")

    def _write(self, command: subprocess.Popen[bytes], data: bytes) -> None:
        if self.fault:
            return  # read, so that the command does not wait for us, and lost
        try:
            before = self.log.dropped
            self.log.write(data)
            if self.log.dropped != before:
                self.notes.change(dropped=self.log.dropped)
        except OSError as fault:
            self.fault = f"its output could not be written to {self.path}: {fault.strerror}"
            self._kill_at = time.monotonic() + ENDS_S
            command.terminate()

    def _follow(self, command: subprocess.Popen[bytes], notes: int) -> int:
        """Until it has ended, and for OUTLIVED_S more while another program prints in its place; its exit code."""
        assert command.stdout is not None
        output = command.stdout.fileno()
        os.set_blocking(output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(notes, selectors.EVENT_READ)
            ended_at = float("inf")
            while True:
                ended = command.poll()
                ended_at = min(ended_at, time.monotonic() if ended is not None else ended_at)
                ready = selector.select(0 if ended is not None else 0.2)
                for key, _events in ready:
                    data = os.read(key.fd, _PIECE)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == output:
                        self._write(command, data)
                    else:
                        self._note(data)
                if ended is not None and (not ready or time.monotonic() > ended_at + OUTLIVED_S):
                    return ended if ended >= 0 else 128 - ended
                if time.monotonic() > self._kill_at:
                    command.kill()

    def run(self) -> int:
        """The command from its start to its end, and what comes afterwards."""
        try:
            command, notes = self._start()
        except LeaseError as fault:
            self.notes.end(2, str(fault))
            return 2
        self._command = command
        if self._asked is not None:  # before there was a command
            command.send_signal(self._asked)
        code = self._follow(command, notes)
        if self.fault:
            afterwards.give_back(self.notes.status)
        elif self._asked is not None and unit.machine_stops():
            self.fault = f"{self.order.host} was shut down or started again"
        self.notes.end(code, self.fault)
        if self.notes.status.leases:
            afterwards.do(self.order, self.notes.status, self.environment, self.log)
        return 0


def main(argv: Sequence[str]) -> int:
    """As its unit starts it: the name of the program's folder."""
    os.umask(0o077)
    try:
        if len(argv) != 1 or not re.fullmatch(folder.NAME, argv[0]):
            raise LeaseError("usage: supervise NAME")
        with runtime_folder() as runtime:
            return Supervisor(folder.programs() / argv[0], runtime).run()
    except (LeaseError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
