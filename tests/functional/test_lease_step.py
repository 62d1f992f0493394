"""Programs of leases on the GPU server itself: `toolkit run` before a real agent, with srun and scancel that run the
program here and signal it as Slurm's do."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.functional.test_lease_agent import start
from tests.support.lease_agents import Running, Start
from tests.support.lease_lab import until
from toolkit.lease.client import folder_copies

pytestmark = pytest.mark.engines

__all__ = ["start"]

ROOT = Path(__file__).parents[2]
#: A step, each process in a session of its own as on another machine; asked to end, it kills them, as srun does. Its
#: exit code is the highest, its servers are gpu1, gpu2, ..., and its input is everybody's, if nothing else is said.
SRUN = """#!{python}
import os, signal, subprocess, sys
words = sys.argv[1:]
groups = [[]]
for word in words:  # servers of their own numbers of GPUs are groups
    groups.append([]) if word == ":" else groups[-1].append(word)
places = []
for group in groups:
    options = dict(w.split("=", 1) for w in group if w.startswith("--") and "=" in w)
    each, server = int(options.get("--ntasks-per-node", 1)), len(dict(places))
    places += [(server + n // each, n % each) for n in range(int(options["--ntasks"]))]
words, count, processes = groups[0], len(places), []
options = dict(w.split("=", 1) for w in words if w.startswith("--") and "=" in w)
first = next(i for i, w in enumerate(words) if w in ("python3", "sh", "tar", "rm"))
everybodys = count > 1 and options.get("--input", "all") == "all" and sys.stdin.buffer.read()
for number, (server, local) in enumerate(places):
    node = {{"SLURMD_NODENAME": "gpu%d" % (server + 1), "SLURM_LOCALID": str(local)}}
    heard = None if number == 0 else subprocess.DEVNULL
    how = {{"cwd": options["--chdir"], "start_new_session": True, "env": dict(os.environ, **node), "stdin": heard}}
    if everybodys is not False:
        how["stdin"] = os.memfd_create("input")
        os.write(how["stdin"], everybodys)
        os.lseek(how["stdin"], 0, os.SEEK_SET)
    processes.append(subprocess.Popen(words[first:], **how))
signal.signal(signal.SIGTERM, lambda *_: [os.killpg(p.pid, signal.SIGKILL) for p in processes if p.poll() is None])
if words[first] == "python3":
    open("{folder}/pids", "w").write(" ".join(str(p.pid) for p in processes) + ".")
codes = [p.wait() for p in processes]
if len(groups) > 1 and options["--mpi"] == "pmix":  # as srun of 22.05 does now and then
    os.write(1, b"x" * int(os.environ.get("LATE", 0)))  # what it passes on when they have ended
    signal.pause()
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""
SCANCEL = """#!{python}
import os, pathlib, signal, sys, time
pids = pathlib.Path("{folder}/pids")
while not (pids.exists() and pids.read_text().endswith(".")):
    time.sleep(0.02)
for pid in pids.read_text()[:-1].split():
    try:
        os.killpg(int(pid), signal.Signals["SIG" + sys.argv[2].removeprefix("--signal=")])
    except ProcessLookupError:
        pass
"""
RUN = """
import dataclasses, json, os, sys
from pathlib import Path
from toolkit.lease import LeaseError, endpoint
from toolkit.lease.client import ranks, step
from toolkit.lease.machine import host
end = endpoint.parse(sys.argv[1])
ends = [dataclasses.replace(end, node="gpu%d" % (1 + n)) for n in range(int(os.environ.get("SERVERS", 1)))]
for n, gpus in enumerate(os.environ.get("GPUS", "").split()):
    ends[n] = dataclasses.replace(ends[n], devices=end.devices * int(gpus))
step._LOOK = os.environ.get("ELASTIC_AI_TEST_LOOK", "") + step._LOOK
ranks.FirstFailure.__init__.__defaults__ = (0, 3.0)
ranks.ENDS_S = 2.0
synced = Path(os.environ["SYNCED"]) if "SYNCED" in os.environ else None
how = step.How(synced=synced, start=os.environ.get("START", "server"), mpi=os.environ.get("MPI", "none"))
say = lambda words: print(words, file=sys.stderr, flush=True)
try:
    sys.exit(step.start_and_wait(host.this_host(), sys.argv[2:], ends, say, how=how))
except LeaseError as fault:
    sys.exit(f"error: {fault}")
"""


def run(lease: Running, *program: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
    folder = lease.folder / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in {"srun": SRUN, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.format(python=sys.executable, folder=lease.folder))
        (folder / name).chmod(0o755)
    devices = tuple(replace(device, shards=140) for device in lease.instance.devices)
    end = replace(lease.endpoint, devices=devices, where="server")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, end.text(), *program], cwd=cwd or lease.folder, env=environment,
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def lease(start: Start) -> Running:
    """It outlives the time between two programs, and what a busy machine takes to start one."""
    return start(where="server", engine_dir=Path("/nonexistent"), grace_s=60.0, first_s=60.0)


def test_input_output_folder_gpus_and_exit_code_are_passed_on(lease: Running) -> None:
    (lease.folder / "words").write_text("in the folder\n")
    program = run(lease, "sh", "-c", "cat words -; echo $CUDA_VISIBLE_DEVICES $ELASTIC_AI_LEASE; echo no >&2; exit 7")
    assert program.communicate("given\n", timeout=90) == ("in the folder\ngiven\nGPU-0 41\n", "no\n")
    assert program.returncode == 7
    program = run(lease, "sh", "-c", "kill -9 $$")
    program.communicate(timeout=90)
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
    assert "lease 41 has ended: it was taken back" in program.communicate(timeout=90)[1]
    assert program.returncode == 128 + 15


def test_nothing_runs_on_when_we_are_killed(start: Start) -> None:
    lease = start(where="server", engine_dir=Path("/nonexistent"), first_s=60.0)
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
    assert "gpu1 has another folder" in program.communicate(timeout=90)[1]
    assert list(mine.iterdir()) == []


def test_a_folder_that_is_not_there_starts_nothing(lease: Running) -> None:
    gone = lease.folder / "gone"
    gone.mkdir()
    program = run(lease, "no-such-program", cwd=gone)
    assert "gpu1 has no program no-such-program" in program.communicate(timeout=90)[1]
    assert not (lease.folder / "pids").exists()


def test_a_program_that_cannot_start_leaves_no_copy_of_the_folder(lease: Running, tmp_path: Path) -> None:
    before = copies()
    program = run(lease, "no-such-program", SYNCED=str(tmp_path))
    assert "gpu1 has no program no-such-program" in program.communicate(timeout=90)[1]
    assert copies() == before


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
    (there,) = re.findall("^a folder is on gpu1 in (.*) until it is back$", err.replace(f"{tmp_path}/", ""), re.M)
    assert (program.returncode, out) == (3, f"{there}\n")
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


#: What each process is told, as one line.
TELLS = (
    "echo $NODE_RANK $NNODES $MASTER_ADDR $LOCAL_WORLD_SIZE $ELASTIC_AI_WORLD_SIZE ${RANK-} ${LOCAL_RANK-} "
    "${WORLD_SIZE-} ${PET_NNODES-} ${PET_NODE_RANK-} ${PET_NPROC_PER_NODE-} ${PET_MASTER_PORT-}"
)


def test_processes_on_several_servers_find_each_other(lease: Running) -> None:
    """As torchrun and MPI read it; torchrun needs no options."""
    program = run(lease, "sh", "-c", f"{TELLS}; cat $ELASTIC_AI_HOSTFILE", SERVERS="2")
    out, err = program.communicate("", timeout=90)
    assert (program.returncode, err) == (0, "")
    hosts = ["127.0.0.1 slots=1"] * 2
    assert sorted(out.splitlines()) == sorted(
        ["0 2 127.0.0.1 1 2 2 0 1 24041", "1 2 127.0.0.1 1 2 2 1 1 24041", *hosts * 2]
    )
    program = run(lease, "sh", "-c", TELLS, SERVERS="3", START="gpu")
    out, _err = program.communicate("", timeout=90)
    assert sorted(out.splitlines()) == [f"{n} 3 127.0.0.1 1 3 {n} 0 3" for n in range(3)]
    program = run(lease, "sh", "-c", "echo once; wc -l < $OMPI_MCA_orte_default_hostfile", SERVERS="3", START="once")
    assert program.communicate("", timeout=90)[0].split() == ["once", "3"]


def test_servers_of_unequal_numbers_of_gpus_are_one_program(lease: Running) -> None:
    """Ranks go on from server to server, torchrun and MPI's hosts file are told the number of each."""
    program = run(lease, "sh", "-c", f"{TELLS}; cat $ELASTIC_AI_HOSTFILE", SERVERS="2", GPUS="2 1")
    out, err = program.communicate("", timeout=90)
    assert (program.returncode, err) == (0, "")
    told = ["0 2 127.0.0.1 2 3 2 0 2 24041", "1 2 127.0.0.1 1 3 2 1 1 24041"]
    assert sorted(out.splitlines()) == sorted([*told, *["127.0.0.1 slots=2", "127.0.0.1 slots=1"] * 2])
    program = run(lease, "sh", "-c", TELLS, SERVERS="3", GPUS="1 3 2", START="gpu")
    out, _err = program.communicate("", timeout=90)
    assert sorted(out.splitlines()) == [
        "0 3 127.0.0.1 1 6 0 0 6", *(f"1 3 127.0.0.1 3 6 {1 + n} {n} 6" for n in range(3)),
        *(f"2 3 127.0.0.1 2 6 {4 + n} {n} 6" for n in range(2)),
    ]  # fmt: skip
    tells = "echo $SLURM_TASKS_PER_NODE $SLURM_NTASKS $SLURM_GPUS"
    program = run(lease, "sh", "-c", tells, SERVERS="2", GPUS="2 1", START="once")
    assert program.communicate("", timeout=90)[0].split() == ["2(x1),1(x1)", "3", "1"]


def test_an_srun_that_never_ends_is_given_up_when_all_processes_have_ended(lease: Running) -> None:
    """With PMIx and unequal servers; nothing of what they said is lost."""
    ends = {"SERVERS": "2", "GPUS": "2 1", "START": "gpu", "MPI": "pmix"}
    program = run(lease, "sh", "-c", "echo said; echo more >&2", **ends)
    out, err = program.communicate("", timeout=60)
    assert (program.returncode, out.split(), err.split()) == (0, ["said"] * 3, ["more"] * 3)
    slow = run(lease, "true", **ends, LATE="400000")  # more than a pipe holds: the reader pauses
    time.sleep(6)
    assert (slow.communicate("", timeout=60)[0].count("x"), slow.returncode) == (400000, 0)
    program = run(lease, "sh", "-c", "[ $RANK != 1 ] || exit 5; sleep 1", **ends)
    out, err = program.communicate("", timeout=60)
    assert (program.returncode, "process 1 on gpu1 ended with exit code 5" in err) == (5, True)


def test_a_lone_colon_is_the_programs(lease: Running) -> None:
    """To srun it is the end of one program and the beginning of another."""
    program = run(lease, "sh", "-c", 'echo "$@"', "sh", ":", "=:", "a:", "=")
    assert program.communicate("", timeout=90)[0] == ": =: a: =\n"


def test_mpirun_is_told_all_servers_and_no_bridge_of_docker(lease: Running, tmp_path: Path) -> None:
    """Of a step of one process Slurm's own variables say that it is for one. The bridge has one address everywhere."""
    slurms = "$SLURM_NODELIST $SLURM_TASKS_PER_NODE $SLURM_OVERLAP"
    tells = f"echo {slurms} ${{OMPI_MCA_btl_tcp_if_exclude-}} ${{OMPI_MCA_oob_tcp_if_exclude-}}"
    networks = ["127.0.0.0/8,docker0"] * 2
    program = run(lease, "sh", "-c", tells, SERVERS="3", START="once")
    assert program.communicate("", timeout=90)[0].split() == ["gpu1,gpu2,gpu3", "1(x3)", "1", *networks]
    assert run(lease, "sh", "-c", tells).communicate("", timeout=90)[0].split() == ["gpu1", "1(x1)", "1"]
    program = run(lease, "sh", "-c", tells, SERVERS="2", START="gpu", SLURM_OVERLAP="")
    assert program.communicate("", timeout=90)[0].split() == networks * 2
    program = run(lease, "sh", "-c", tells, SERVERS="2", START="gpu", OMPI_MCA_btl_tcp_if_include="ib0")
    assert program.communicate("", timeout=90)[0].split() == []
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("# a file of the user's\nbtl_tcp_if_include = ib0\n")
    program = run(lease, "sh", "-c", tells, SERVERS="2", START="gpu", HOME=str(tmp_path))
    assert program.communicate("", timeout=90)[0].split() == []


def test_the_first_process_that_fails_ends_the_others_and_its_exit_code_is_that_of_all(lease: Running) -> None:
    fails = 'if [ $NODE_RANK = 1 ]; then sleep 1; printf "last words" >&2; exit 7; fi; '
    program = run(
        lease, "bash", "-c", f'{fails} trap "echo told; exit 9" TERM; while :; do sleep 0.1; done', SERVERS="3"
    )
    out, err = program.communicate("", timeout=60)
    assert program.returncode == 7
    assert out.split() == ["told", "told"]
    assert "process 1 on gpu2 ended with exit code 7; the others are ended" in err
    assert "last words" in err
    assert "elastic-ai-" not in err
    waits = "while :; do sleep 0.1; done"
    stubborn = run(lease, "bash", "-c", f'{fails} trap "" TERM; {waits}', SERVERS="2")
    stubborn.communicate("", timeout=60)
    assert stubborn.returncode == 7


def test_signals_and_input_of_several_processes(lease: Running) -> None:
    """A signal is everybody's, the input the first one's."""
    assert run(lease, "cat", SERVERS="3").communicate("once\n", timeout=90)[0] == "once\n"
    program = run(
        lease, "bash", "-c", 'trap "echo got; exit 3" USR1; echo here; while :; do sleep 0.1; done', SERVERS="2"
    )
    assert program.stdout is not None
    assert [program.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    program.send_signal(signal.SIGUSR1)
    out, _err = program.communicate(timeout=90)
    assert (program.returncode, out.split()) == (3, ["got", "got"])


def test_what_several_servers_made_comes_back_the_newest_of_each_file(lease: Running, tmp_path: Path) -> None:
    """Here their copies are one folder after the other, as srun of these tests has but one machine."""
    before, synced = copies(), tmp_path / "folder"
    synced.mkdir()
    ends = {node: ["sh", "-c", 'exec "$@"', node] for node in ("gpu1", "gpu2")}
    places = {node: tmp_path / node for node in ends}
    (synced / "mine").write_text("given")
    (synced / "firsts").write_text("given")
    os.utime(synced / "mine", ns=(0, 10**18 + 200))

    def there(node: str, words: Sequence[str]) -> list[str]:
        return [word.replace("/var/tmp", str(places[node])) for word in [*ends[node], *words]]

    for place in places.values():
        place.mkdir()
    both = folder_copies.Copies(synced, {node: partial(there, node) for node in ends}, dict(os.environ))
    both.send()
    for node, place in places.items():
        (copy,) = place.iterdir()
        (copy / f"of-{node}").write_text(node)
    (first,) = places["gpu1"].iterdir()
    (first / "firsts").write_text("changed there")
    (second,) = places["gpu2"].iterdir()
    (second / "mine").write_text("changed there")
    os.utime(second / "mine", ns=(0, 10**18 + 700))  # within the same second
    both.fetch(pytest.fail)
    assert {path.name: path.read_text() for path in synced.iterdir()} == {
        "mine": "changed there", "firsts": "changed there", "of-gpu1": "gpu1", "of-gpu2": "gpu2",
    }  # fmt: skip
    assert [list(place.iterdir()) for place in places.values()] == [[], []]
    assert copies() == before
