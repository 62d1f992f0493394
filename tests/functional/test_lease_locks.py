"""Locks of leases, with real processes that have them: a dead, a stopped or a stuck one holds nobody up for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease.server import hooks, lease_locks
from toolkit.lease.server.lease_locks import Busy, locked, turn

pytestmark = pytest.mark.engines

#: Has the lock until it is told to go on, or killed.
PROGRAM = """
import fcntl, os, signal, sys, time
handle = open(sys.argv[1], "w")
fcntl.flock(handle, fcntl.LOCK_EX)
print("there", flush=True)
if sys.argv[2] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    time.sleep(600)
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    found = FakeHost(folder=tmp_path)
    found.run_dir.mkdir(exist_ok=True)
    found.run_dir.with_name(lease_locks.FOLDER).mkdir()
    object.__setattr__(found, "clock", time)
    return found


@pytest.fixture
def holder(host: FakeHost, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    path, how = request.param
    lock = host.run_dir / ".lock" if path == "server" else host.run_dir.with_name(lease_locks.FOLDER) / "41"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, lock, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def state_of(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("holder", [("server", "stopped"), ("lease", "stopped")], indirect=True)
def test_who_was_stopped_with_a_lock_is_made_to_go_on(
    host: FakeHost, holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    while state_of(holder) != "T":
        time.sleep(0.01)
    with turn(host, "41", wait_s=30), locked(host):
        assert holder.wait(10) == 0
    assert f"process {holder.pid} was stopped in the middle" in capsys.readouterr().err


@pytest.mark.parametrize("holder", [("server", "stuck"), ("lease", "stuck")], indirect=True)
def test_who_keeps_a_lock_is_named_and_waited_for_so_long(
    host: FakeHost, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lease_locks, "LOCK_S", 0.2)
    with pytest.raises(Busy, match=rf"process {holder.pid} \(python.*, uid \d+\) is at it"):  # noqa: SIM117
        with turn(host, "41", wait_s=0.2), locked(host):
            pytest.fail("nobody else has it")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with turn(host, "41", wait_s=0), locked(host):
        pass


@pytest.mark.parametrize("holder", [("server", "stuck")], indirect=True)
def test_a_prolog_that_cannot_have_the_lock_drains_nothing(
    host: FakeHost, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.lease_texts import slurm_job

    monkeypatch.setattr(lease_locks, "LOCK_S", 0.1)
    host.serve()
    host.slurm.said = [slurm_job(41, gres="gpu:v100:1(IDX:2)")]
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    assert hooks.prolog(host) == 0
    assert f"process {holder.pid}" in capsys.readouterr().err
    assert host.systemd.units == {}
