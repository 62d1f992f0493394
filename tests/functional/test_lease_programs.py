"""Programs that leases start: the user's own, and Slurm's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import catches, runs
from toolkit.lease import LeaseError
from toolkit.lease.jobs import slurm

pytestmark = pytest.mark.engines


def test_a_program_keeps_its_exit_code_and_gets_what_is_sent_to_us(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, threading; from functools import partial\n"
        "from toolkit.lease.client import running\nfrom toolkit.lease.machine import host\n"
        "p = subprocess.Popen(sys.argv[1:], preexec_fn=partial(running.die_with, os.getpid()))\n"
        "watch = running.Watch(host.Host(), 1, (), threading.Event(), print, None, 10)\n"
        "with running._signals_to(p): sys.exit(watch.wait(p))"
    )
    root = Path(__file__).parents[2]

    def go(*argv: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", code, *argv], cwd=root)

    assert go("sh", "-c", "exit 7").wait(20) == 7
    assert go("sh", "-c", "kill -9 $$").wait(20) == 137
    process = go("sh", "-c", f"trap 'exit 9' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    while not catches(process.pid, signal.SIGTERM):  # the program begins before we pass on what we are sent
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 9
    (tmp_path / "pid").unlink()
    process = go("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    process.kill()  # as power loss for the tool alone: its program ends too
    process.wait(20)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not runs(pid):
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the program outlived its lease")


def test_slurm_that_is_not_there_or_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeaseError, match="scontrol is not installed here"):
        slurm.nodes()
    (tmp_path / "sleeps").write_text(f"#!{sys.executable}\nimport time; time.sleep(60)\n")
    (tmp_path / "sleeps").chmod(0o755)
    with pytest.raises(LeaseError, match="did not answer within 0 s"):
        slurm.run(["sleeps"], timeout_s=0.3)
