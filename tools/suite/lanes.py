"""Runs checks beside each other: who may begin is one function, and what ended is told when it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.suite.checks import LEAST, Check, When, shown
from tools.suite.wanted import ROOT

AT_ONCE = 3
ORDINARY = 2
"""Of those at once, how many at the ordinary priority: as many as there are cores."""
BESIDE = "ELASTIC_AI_BESIDE"
"""Names a file that is there while anything that may run beside the lab is to end (tests/integration/conftest.py)."""
WITH_THE_LAB = (When.ALONG, When.BESIDE)


@dataclass(frozen=True)
class Ended:
    """A check that has ended. `busy_s`: seconds of a processor that it and what it waited for took."""

    check: Check
    exit_code: int
    took_s: float
    busy_s: float
    log: Path


@dataclass
class _Running:
    check: Check
    began_s: float
    process: subprocess.Popen[bytes]
    log: Path


def ready(waiting: Sequence[Check], running: Sequence[Check]) -> Check | None:
    """The check that begins next beside those that run; None while none may."""
    if len(running) >= AT_ONCE:
        return None
    open_ = [*waiting, *running]
    ordinary = sum(check.when is not When.BESIDE for check in running)
    before_lab = any(check.when is When.FIRST or check.before_lab for check in open_)
    others = any(check.when is not When.LAST for check in open_)
    for check in sorted(waiting, key=lambda check: check.when):
        if check.when is When.BESIDE:
            # a place is kept for what may still begin at the ordinary priority
            if any(c.when is When.FIRST for c in waiting) and len(running) - ordinary >= AT_ONCE - ORDINARY:
                continue
            return check
        if ordinary >= ORDINARY:
            continue
        if check.when in (When.FIRST, When.ALONG) or (check.when is When.LAB and not before_lab) or not others:
            return check
    return None


@dataclass
class Lanes:
    """Runs checks, with their logs in `folder`; `say` prints a line. `began_s`: what times are counted from."""

    folder: Path
    began_s: float
    say: Callable[[str], None] = print
    ended: list[Ended] = field(default_factory=list)
    _running: list[_Running] = field(default_factory=list)
    _stopped: bool = False

    def run(self, checks: Iterable[Check]) -> list[Ended]:
        """Every check, in the order in which they ended; KeyboardInterrupt after `stop`, once all have ended."""
        waiting, beside = list(checks), self.folder / ".beside"
        beside.touch()
        while (waiting and not self._stopped) or self._running:
            while not self._stopped and (check := ready(waiting, [one.check for one in self._running])):
                waiting.remove(check)
                self._begin(check, beside)
            if not any(c.when in WITH_THE_LAB for c in (*waiting, *(one.check for one in self._running))):
                beside.unlink(missing_ok=True)
            self._wait()
        if self._stopped:
            raise KeyboardInterrupt
        return self.ended

    def stop(self, *_: object) -> None:
        """Ends what runs and begins no more: for a signal, whatever it interrupts."""
        self._stopped = True
        for one in self._running:
            _end(one)

    def _begin(self, check: Check, beside: Path) -> None:
        self.say(f"-- {self._now()} begun: {check.name}   ({shown(check)})")
        log = self.folder / check.name.replace("/", "_")
        command = [*(LEAST if check.when is When.BESIDE else ()), *check.command]
        env = {**os.environ, **check.env, **({BESIDE: str(beside)} if check.when is When.LAB else {})}
        with log.open("wb") as out:
            # a session of its own, so that an interrupt ends all of it
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._running.append(_Running(check, time.monotonic(), process, log))
        if self._stopped:  # meanwhile
            _end(self._running[-1])

    def _wait(self) -> None:
        """Waits until a check ends, and shows what it printed."""
        pid, status, usage = os.wait4(-1, 0)
        for one in self._running:
            if one.process.pid == pid:
                break
        else:
            return
        self._running.remove(one)
        one.process.returncode = code = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - one.began_s
        self.ended.append(Ended(one.check, code, took, usage.ru_utime + usage.ru_stime, one.log))
        self.say(f"\n== {one.check.name}")
        sys.stdout.flush()
        with one.log.open("rb") as log:
            shutil.copyfileobj(log, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        self.say(f"-- {self._now()} ended: {one.check.name}, after {clock(took)}, exit code {code}")

    def _now(self) -> str:
        return clock(time.monotonic() - self.began_s)


def _end(one: _Running) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(one.process.pid, signal.SIGTERM)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
