"""An interrupt that comes while a process is being started, or ended, leaves no process that nobody knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkit import narrowing
from toolkit.interruption import interrupted_afterwards, term_as_ctrl_c
from toolkit.lab import drill_validation

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def ctrl_c_acts() -> Iterator[None]:
    """Ctrl-C is ignored by what a shell started in the background, as these tests may have been."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=SIGNALS)
def started(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """What was started; the signal comes when a process runs that its starter has not been told of."""
    all_of_them = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            all_of_them.append(self)
            signal.raise_signal(request.param)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    return all_of_them


def narrow(folder: Path) -> None:
    narrowing.Runner(["sleep", "986"], folder, 16, 600.0, print).narrow(["n1", "n2"], 2)


def drill(folder: Path) -> None:
    drill_validation.run([sys.executable, "-c", "import time; time.sleep(986)"], folder)


@pytest.mark.parametrize("command", [narrow, drill])
def test_what_was_just_started_is_ended_too(
    command: Callable[[Path], None], started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    with term_as_ctrl_c(), pytest.raises(KeyboardInterrupt):
        command(tmp_path)
    try:
        assert [one.returncode for one in started] != [None], "nobody waited for it"
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_a_second_ctrl_c_ends_the_other_jobs_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first of them is being ended."""
    real, told, ended = os.killpg, [], []

    def killpg(group: int, number: int) -> None:
        real(group, number)
        if number == signal.SIGTERM:
            ended.append(group)
            signal.raise_signal(signal.SIGINT)

    def say(words: str) -> None:
        told.append(words)

    monkeypatch.setattr(os, "killpg", killpg)
    monkeypatch.setattr(narrowing.time, "sleep", lambda _: signal.raise_signal(signal.SIGINT))
    runner = narrowing.Runner(["sleep", "986"], tmp_path, 16, 600.0, say)
    with pytest.raises(KeyboardInterrupt):
        runner._round([("n1", "n2"), ("n3", "n4"), ("n5", "n6")])
    assert len(ended) == 3


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_acts_once_at_the_end_and_handlers_are_as_before(number: signal.Signals) -> None:
    with term_as_ctrl_c():
        before = [signal.getsignal(one) for one in SIGNALS]
        reached = []

        def work() -> None:
            with interrupted_afterwards():
                signal.raise_signal(number)
                signal.raise_signal(number)
                reached.append(True)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert reached
        assert [signal.getsignal(one) for one in SIGNALS] == before
        with interrupted_afterwards():
            pass


def test_what_is_ignored_stays_ignored() -> None:
    """As Ctrl-C is by a program that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted_afterwards():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    """Under nohup a closed terminal ends nothing."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with term_as_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
