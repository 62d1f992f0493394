"""Programs of leases on the GPU server itself: `toolkit run` before a real agent, with srun and scancel that run the
program here and signal it as Slurm's do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.functional.test_lease_agent import Running, Start, start
from tests.support.lease_lab import until

__all__ = ["start"]

ROOT = Path(__file__).parents[2]
#: A step of its own, in a session as on another machine; told to end, it kills the program, as srun does.
SRUN = """#!{python}
import os, signal, subprocess, sys
words = sys.argv[1:]
options = dict(w.split("=", 1) for w in words if w.startswith("--") and "=" in w)
first = next(i for i, w in enumerate(words) if w in ("env", "sh", "tar", "rm"))
p = subprocess.Popen(words[first:], cwd=options["--chdir"], start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(p.pid, signal.SIGKILL))
if words[first] == "env":
    open("{folder}/pid", "w").write(str(p.pid))
code = p.wait()
sys.exit(code if code >= 0 else 128 - code)
"""
SCANCEL = """#!{python}
import os, pathlib, signal, sys, time
pid = pathlib.Path("{folder}/pid")
while not (pid.exists() and pid.read_text()):
    time.sleep(0.02)
os.killpg(int(pid.read_text()), signal.Signals["SIG" + sys.argv[2].removeprefix("--signal=")])
"""
RUN = """
import json, os, sys
from pathlib import Path
from toolkit.lease import LeaseError, endpoint, host, step
end = endpoint.LeaseEndpoint(**json.loads(sys.argv[1]))
step._LOOK = os.environ.get("ELASTIC_AI_TEST_LOOK", "") + step._LOOK
synced = Path(os.environ["SYNCED"]) if "SYNCED" in os.environ else None
say = lambda words: print(words, file=sys.stderr)
try:
    sys.exit(step.start_and_wait(host.this_host(), sys.argv[2:], [end], say, synced=synced))
except LeaseError as fault:
    sys.exit(f"error: {fault}")
"""


def run(lease: Running, *program: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
    folder = lease.folder / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in {"srun": SRUN, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.format(python=sys.executable, folder=lease.folder))
        (folder / name).chmod(0o755)
    devices = tuple({**device, "shards": 140} for device in lease.instance["devices"])
    end = replace(lease.endpoint, devices=devices, where="server")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(asdict(end)), *program], cwd=cwd or lease.folder, env=environment,
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def lease(start: Start) -> Running:
    """It outlives the time between two programs, and what a busy machine takes to start one."""
    return start(where="server", engine_dir="/nonexistent", grace_s=60.0, first_s=60.0)


def test_input_output_folder_gpus_and_exit_code_are_passed_on(lease: Running) -> None:
    (lease.folder / "words").write_text("in the folder\n")
    program = run(lease, "sh", "-c", "cat words -; echo $CUDA_VISIBLE_DEVICES $ELASTIC_AI_LEASE; echo no >&2; exit 7")
    assert program.communicate("given\n", timeout=30) == ("in the folder\ngiven\nGPU-0 41\n", "no\n")
    assert program.returncode == 7
    program = run(lease, "sh", "-c", "kill -9 $$")
    program.communicate(timeout=30)
    assert program.returncode == 128 + 9


def test_what_is_sent_to_us_is_the_programs_and_ctrl_c_ends_it_at_last(lease: Running) -> None:
    waits = "echo here; while :; do sleep 0.1; done"
    for number, trap, code in (
        (signal.SIGUSR1, 'trap "exit 9" USR1', 9),
        (signal.SIGTERM, 'trap "exit 8" TERM', 8),
        (signal.SIGINT, "true", 128 + 2),
    ):
        program = run(lease, "bash", "-c", f"{trap}; {waits}")
        assert program.stdout is not None
        assert program.stdout.readline() == "here\n"
        program.send_signal(number)
        assert program.wait(20) == code
    stubborn = run(lease, "bash", "-c", f'trap "" INT; {waits}')
    assert stubborn.stdout is not None
    assert stubborn.stdout.readline() == "here\n"
    for _ in range(3):
        assert stubborn.poll() is None
        time.sleep(0.5)
        stubborn.send_signal(signal.SIGINT)
    assert stubborn.wait(20) == 128 + 9


def test_a_lease_that_ends_takes_its_program_with_it_and_says_why(lease: Running) -> None:
    program = run(lease, "sh", "-c", "echo here; exec sleep 60")
    assert program.stdout is not None
    assert program.stdout.readline() == "here\n"
    lease.process.terminate()
    assert "lease 41 has ended: it was taken back" in program.communicate(timeout=30)[1]
    assert program.returncode == 128 + 15


def test_nothing_runs_on_when_we_are_killed(start: Start) -> None:
    lease = start(where="server", engine_dir="/nonexistent", first_s=60.0)
    program = run(lease, "sh", "-c", "echo $$; exec sleep 60")
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    program.kill()
    program.communicate()
    assert lease.ended().startswith("its client")  # which ends the job, and with it all of its steps
    until(lambda: Path(f"/proc/{pid}").exists(), False)


def test_a_folder_of_the_same_name_is_not_the_same_folder(lease: Running, tmp_path: Path) -> None:
    """On the server another is at its place; here a program that takes the folder's name in between."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    for folder in (mine, Path("/proc")):  # where nobody can make a file
        assert run(lease, "true", cwd=folder).wait(30) == 0
    moves = f"cd() {{ command cd {other}; }}\n"
    program = run(lease, "true", cwd=mine, ELASTIC_AI_TEST_LOOK=moves)
    assert "gpu1 has another folder" in program.communicate(timeout=30)[1]
    assert list(mine.iterdir()) == []


def test_a_folder_that_is_not_there_starts_nothing(lease: Running) -> None:
    gone = lease.folder / "gone"
    gone.mkdir()
    program = run(lease, "no-such-program", cwd=gone)
    assert "gpu1 has no program no-such-program" in program.communicate(timeout=30)[1]
    assert not (lease.folder / "pid").exists()


def copies() -> set[Path]:
    return set(Path("/var/tmp").glob("elastic-ai-*"))


def test_a_folder_goes_there_and_comes_back_with_what_the_program_made(lease: Running, tmp_path: Path) -> None:
    """Whatever the program's end; a link stays a link, and nothing stays there."""
    before, synced = copies(), tmp_path / "a folder"
    (synced / "deep").mkdir(parents=True)
    (synced / "deep" / "in").write_text("given")
    (synced / "link").symlink_to("deep/in")
    program = run(lease, "sh", "-c", "pwd; cp link out; rm deep/in; exit 3", SYNCED=str(synced))
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (3, "")
    assert Path(out.strip()).parent == Path("/var/tmp")
    assert (synced / "out").read_text() == "given"
    assert (synced / "deep" / "in").read_text() == "given"  # what is here is never removed
    assert (synced / "link").is_symlink()
    assert copies() == before


def test_a_killed_program_loses_nothing_and_what_cannot_come_back_stays_there(lease: Running, tmp_path: Path) -> None:
    before, synced = copies(), tmp_path / "folder"
    synced.mkdir()
    waits = "echo made > out; echo here; sleep 60"
    program = run(lease, "bash", "-c", waits, SYNCED=str(synced))
    assert program.stdout is not None
    assert program.stdout.readline() == "here\n"
    program.send_signal(signal.SIGINT)
    assert program.wait(60) == 128 + 2
    assert (synced / "out").read_text() == "made\n"
    assert copies() == before
    program = run(lease, "sh", "-c", f"echo made > new; rm -r {synced}", SYNCED=str(synced))
    err = program.communicate(timeout=60)[1]
    (left,) = copies() - before
    assert f"the files are on gpu1 in {left}" in err
    assert program.returncode == 1
    assert (left / "new").read_text() == "made\n"
    shutil.rmtree(left)
