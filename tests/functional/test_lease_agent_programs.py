"""A program on a lease: what it gets from its servers, and how it is told of the lease's end."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.lease_agents import TOKEN, Start, agents, in_s
from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError, wire
from toolkit.lease.client import running

pytestmark = pytest.mark.engines


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with agents(tmp_path) as go:
        yield go


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """This machine, with an engine of the server's release."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    host = FakeHost(folder=tmp_path)
    host.serve()
    return host


def test_a_program_gets_its_servers_and_leaves_no_token(start: Start, host: FakeHost) -> None:
    lease = start(grace_s=30.0)
    show = 'echo "$ELASTIC_AI_SERVERS $ELASTIC_AI_LEASE"'
    script = f'cat "$ELASTIC_AI_TOKEN_FILE" > {host.folder}/seen; {show} >> {host.folder}/seen; exit 3'
    told: list[str] = []
    assert running.start_and_wait(host, ["sh", "-c", script], [lease.endpoint], told.append) == 3
    assert (host.folder / "seen").read_text() == f"{TOKEN}\n127.0.0.1:{lease.instance.port} 41\n"
    assert list((host.folder / "mine").iterdir()) == []
    assert told == []
    assert lease.ended() == "its client is gone"


def test_a_lease_that_ends_first_is_said_and_the_program_ends(start: Start, host: FakeHost) -> None:
    lease = start(mode="hold")
    lease.due(1.5)
    told: list[str] = []
    assert (
        running.start_and_wait(host, ["sleep", "60"], [lease.endpoint], told.append, patience_s=0.5)
        == 128 + signal.SIGTERM
    )
    assert told == ["lease 41 has ended: its time is over"]
    with pytest.raises(LeaseError, match="does not answer"):
        running.start_and_wait(host, ["true"], [lease.endpoint], told.append)


@pytest.mark.parametrize(
    ("code", "chosen", "ends", "words"),
    [
        (wire.EndCode.PREEMPTED, signal.SIGUSR1, 7, "a job of higher priority needs its GPUs"),
        (wire.EndCode.ADMINISTRATOR, None, 128 + signal.SIGTERM, "the administrator ended it"),
    ],
)
def test_a_grace_reaches_the_program(
    start: Start, host: FakeHost, code: wire.EndCode, chosen: signal.Signals | None, ends: int, words: str
) -> None:
    """Its signal comes while it still has its GPUs, and the reason before the signal."""
    lease = start()
    program = "trap 'exit 7' USR1; touch $0; while :; do sleep 0.1; done"
    told: list[str] = []

    def warn() -> None:
        while not (host.folder / "started").exists():
            time.sleep(0.05)
        lease.due(30, code)

    thread = threading.Thread(target=warn)
    thread.start()
    argv = ["sh", "-c", program, str(host.folder / "started")]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append, chosen) == ends
    thread.join()
    (line,) = told
    name = (chosen or signal.SIGTERM).name
    assert re.fullmatch(rf"lease 41 ends in (29|30) s: {words}; the program is sent {name}", line)


def test_idle_gpus_are_told_without_a_signal_and_then_taken_back(start: Start, host: FakeHost) -> None:
    """The program can use them again, so nothing ends it before they go."""
    lease = start()
    told: list[str] = []
    path = lease.instance.deadline_file
    later = in_s(600)

    def write(deadline: wire.Deadline) -> None:
        scratch = path.with_name(".deadline")
        scratch.write_text(deadline.text())
        scratch.replace(path)
        time.sleep(1.2)

    def sweep() -> None:
        while not (host.folder / "started").exists():
            time.sleep(0.05)
        idle = replace(later, idle_due=time.monotonic() + 300, idle_s=1500.0)
        write(idle)
        write(later)  # used again
        write(idle)
        write(wire.Deadline(time.time(), time.monotonic(), wire.EndCode.IDLE))

    thread = threading.Thread(target=sweep)
    thread.start()
    argv = ["sh", "-c", "touch $0; trap 'exit 7' TERM; while :; do sleep 0.1; done", str(host.folder / "started")]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append) == 7
    thread.join()
    notices = [line for line in told if "not used for 25 minutes" in line]
    assert len(notices) == 2, told
    assert re.fullmatch(
        r"lease 41: its GPUs were not used for 25 minutes; it ends in (29\d|300) s unless they are", notices[0]
    )
    assert told[-1] == f"lease 41 has ended: {wire.WORDS[wire.EndCode.IDLE]}"
    assert lease.ended() == wire.WORDS[wire.EndCode.IDLE]


def test_a_program_that_takes_no_notice_has_its_grace_and_then_hears_the_same_reason(
    start: Start, host: FakeHost
) -> None:
    lease = start()
    lease.due(1.5, wire.EndCode.PREEMPTED)  # already on its way when the program starts
    told: list[str] = []
    argv = ["sh", "-c", "trap '' USR1; while :; do sleep 0.1; done"]
    ended = running.start_and_wait(host, argv, [lease.endpoint], told.append, signal.SIGUSR1, patience_s=0.5)
    assert ended == 128 + signal.SIGTERM
    assert [line.partition(": ")[2] for line in told] == [
        "a job of higher priority needs its GPUs; the program is sent SIGUSR1",
        "a job of higher priority needs its GPUs",
    ]
    assert lease.ended() == "a job of higher priority needs its GPUs"


def test_a_lease_that_ends_without_notice_sends_the_chosen_signal_at_once(start: Start, host: FakeHost) -> None:
    lease = start(mode="hold")
    lease.due(1.5)
    told: list[str] = []
    argv = ["sh", "-c", "trap 'exit 7' USR1; while :; do sleep 0.1; done"]
    assert running.start_and_wait(host, argv, [lease.endpoint], told.append, signal.SIGUSR1) == 7
    assert told == ["lease 41 has ended: its time is over"]


def test_a_program_whose_parent_died_before_it_could_ask_to_follow_it_does_not_start() -> None:
    done = subprocess.run(["echo", "started"], preexec_fn=partial(running.die_with, 1), capture_output=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, b"")
