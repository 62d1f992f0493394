"""Runs one probe so that nothing of it outlives the controller.

The supervisor is the process that the controller starts on the node. It forks the probe and then only watches: the
controller's end of stdin, the deadline, signals, and the probe. When any of them says stop, the probe gets TERM (it
passes it on to its tool, so that mpirun can end its ranks on other nodes), and after a grace period every process
that descends from the supervisor gets KILL. As a subreaper it stays the ancestor of processes that detach themselves.
Should the supervisor itself be killed, PR_SET_PDEATHSIG takes the probe and its tool along.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from validation.probes.denied import between, reading

EXIT_DEADLINE = 124  # as timeout(1)
EXIT_STOPPED = 143  # stopped from outside: the controller is gone or asked for it
GRACE_S = 3.0  # from TERM to KILL; mpirun needs a second or two to end its ranks elsewhere
KILL_WAIT_S = 5.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


_libc = ctypes.CDLL(None)  # loaded once: a child between fork and exec should not load libraries


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Ask the kernel for KILL when the parent ends. For a child, between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Process ids of everything below `root`, parents before children. Zombies are left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The command name stands in parentheses and may hold anything, so fields count from the last one.
            fields = (entry / "stat").read_bytes().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            found.append(pid)
            queue.append(pid)
    return found


def _reap() -> dict[int, int]:
    """Collect all ended children: pid -> wait status."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(probe: int | None, grace_s: float) -> None:
    """End the probe and whatever descends from this process; returns when nothing is left."""
    if probe is not None:
        _signal(probe, signal.SIGTERM)
    until = time.monotonic() + grace_s
    # The probe ends when its tool has; what is left after that is left for ever.
    while time.monotonic() < until and probe not in _reap():
        time.sleep(0.02)
    until = time.monotonic() + KILL_WAIT_S
    while time.monotonic() < until:
        alive = descendants(os.getpid())
        if not alive:
            return
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.02)
        _reap()


class Watch:
    """Waits for what can end a probe: stdin's end of file, a signal, a deadline, a child's end."""

    def __init__(self, controlled: bool) -> None:
        """`controlled`: stdin is held by a controller, and its end of file means that the controller is gone."""
        self.stopped = False
        self.go = False
        self._fds = [0] if controlled else []
        self._wake, write = os.pipe()
        for fd in (self._wake, write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def wait(self, timeout_s: float) -> None:
        """Sleep until something happens or `timeout_s` are over; look at `stopped` and `go` then."""
        readable, _, _ = select.select([self._wake, *self._fds], [], [], max(0.0, timeout_s))
        if self._wake in readable:
            os.read(self._wake, 4096)
        if 0 in readable:
            if os.read(0, 4096):
                self.go = True
            else:
                self.stopped = True
                self._fds = []


def supervise(probe: Callable[[], int], deadline_s: float, controlled: bool, hold_s: float = 0.0) -> int:
    """Run `probe` in a child and return its exit status, EXIT_DEADLINE or EXIT_STOPPED; nothing of it is left then.

    `hold_s` > 0: start only when the controller writes a line, and give up after that many seconds. The deadline
    counts from the start of the probe. Whatever became of it, a last line of JSON, {"denied": ...}, tells a controller
    what this machine was denied meanwhile.
    """
    watch = Watch(controlled)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    until = time.monotonic() + hold_s
    while hold_s and not watch.go:
        if watch.stopped or time.monotonic() >= until:
            return EXIT_STOPPED
        watch.wait(until - time.monotonic())
    before = reading()
    child = os.fork()
    if child == 0:
        _run_child(probe)
    code = _watched(watch, child, deadline_s)
    if controlled:
        with contextlib.suppress(OSError, ValueError):  # nobody listens any more
            print(json.dumps({"denied": between(before, reading())}), flush=True)
    return code


def _watched(watch: Watch, child: int, deadline_s: float) -> int:
    until = time.monotonic() + deadline_s
    while True:
        status = _reap().get(child)
        if status is not None:
            _end(None, 0.0)  # a tool may have left something behind
            return os.waitstatus_to_exitcode(status) % 256
        if watch.stopped or time.monotonic() >= until:
            _end(child, GRACE_S)
            return EXIT_STOPPED if watch.stopped else EXIT_DEADLINE
        watch.wait(until - time.monotonic())


def _run_child(probe: Callable[[], int]) -> None:
    """The forked side: a session of its own, no stdin, default signals. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        code = probe()
        sys.stdout.flush()
    except BaseException:  # whatever it is, it must not run on as a second supervisor
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
