"""A lease's program on the GPU server itself: a step of the lease's own job, which srun starts and speaks for.

The agent of the lease is there as for any lease: it keeps the time, tells of an early end, and ends the job when this
machine is gone. srun carries input, output and exit code; signals go by scancel, because srun keeps most for itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from toolkit.lease import Exit, LeaseError, sync
from toolkit.lease.endpoint import LeaseEndpoint, gpus_text
from toolkit.lease.heartbeat import keep
from toolkit.lease.host import Host
from toolkit.lease.running import FORWARDED, LOST_S, Say, Watch
from toolkit.lease.slurm import PASSED_ON, SlurmError, said

#: So often Ctrl-C is passed on; the next one ends the program.
PATIENT = 2
#: What a step shares with the job's others: all that the job has. Messages of srun's own would be the program's.
_STEP = ("--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none")
#: Arguments: folder, what it is known by ("-": its name; a file in it; inode and time of change), program. One sentence
#: where the program cannot run in it.
_LOOK = """
cd -- "$1" 2>/dev/null || { echo "has no folder $1, or not for you"; exit 1; }
[ "$2" = - ] || [ -e "./$2" ] || [ "$(stat -L -c "%i %Y" .)" = "$2" ] ||
    { echo "has another folder $1 than this machine"; exit 1; }
command -v "$3" >/dev/null || { echo "has no program $3"; exit 1; }
"""


#: Around the program there: what it started ends with it, also where Slurm loses sight of a process whose parent has
#: ended (no cgroups). Slurm's signals reach all processes of a step, so that this one takes no notice of them. 36 is
#: PR_SET_CHILD_SUBREAPER.
_HOLD = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
    signal.signal(signal.Signals["SIG" + name], lambda *_: None)
try:
    program = subprocess.Popen(sys.argv[1:])
except OSError as fault:
    sys.exit(f"{sys.argv[1]}: {fault.strerror}")
code = program.wait()
while True:
    for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split():
        os.kill(int(pid), signal.SIGKILL)
    try:
        os.wait()
    except ChildProcessError:
        break
sys.exit(code if code >= 0 else 128 - code)
"""


def user_environment() -> dict[str, str]:
    """This user's environment for the program, without what would change the step: options of Slurm's, another job."""
    prefixes = ("SLURM_", "SBATCH_", "SRUN_", "SALLOC_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) or k in PASSED_ON}


def _known_by(folder: Path, stack: ExitStack) -> str:
    """What tells this folder from another of its name: a new file in it (that no cache of a file system knows yet), or
    where none can be made its inode and time of change."""
    try:
        mark = stack.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=".elastic-ai-"))  # noqa: SIM115 - the stack closes it
    except OSError:
        seen = folder.stat()
        return f"{seen.st_ino} {int(seen.st_mtime)}"
    return Path(mark.name).name


def look(host: Host, endpoint: LeaseEndpoint, folder: Path, program: str, named: bool = False) -> None:
    """That the server has the folder that is meant, the same as here (/ is everywhere; `named`: whatever is here), and
    the program in it."""
    words = ["srun", f"--jobid={endpoint.job}", *_STEP, "--gres=none", "--chdir=/", "--quiet", "--input=none"]
    with ExitStack() as stack:
        mark = "-" if named or folder == Path("/") else _known_by(folder, stack)
        done = host.slurm.run([*words, "sh", "-c", _LOOK, "sh", str(folder), mark, program], timeout_s=60)
    if done.returncode and done.stdout.strip():
        why = done.stdout.strip().splitlines()[-1]
        hint = "; copy it there by --sync, or name one of the server's by --folder"
        hint = "" if named or " program " in why else hint
        raise LeaseError(f"{endpoint.node} {why}{hint}")
    if done.returncode:
        raise SlurmError(said(done), Exit.RETRY)


def command(endpoint: LeaseEndpoint, folder: Path, argv: Sequence[str], terminal: bool, deaf: bool) -> list[str]:
    """srun's command line. The GPUs by their UUIDs: Slurm's own numbers may begin anew in a step. deaf: no input."""
    words = ["srun", f"--jobid={endpoint.job}", *_STEP, f"--chdir={folder}", "-Q", "-Q"]
    words += ["--pty"] if terminal else ["--input=none"] if deaf else []
    variables = {
        "CUDA_VISIBLE_DEVICES": ",".join(device["uuid"] for device in endpoint.devices),
        "ELASTIC_AI_LEASE": str(endpoint.lease),
        "ELASTIC_AI_GPUS": gpus_text([endpoint]),
    }
    return [*words, "env", *(f"{key}={value}" for key, value in variables.items()), "python3", "-I", "-c", _HOLD, *argv]


def _beside(endpoint: LeaseEndpoint, program: Sequence[str]) -> list[str]:
    """srun's command line of a program that serves the lease's own: no GPU, its input and output are its caller's."""
    return ["srun", f"--jobid={endpoint.job}", *_STEP, "--gres=none", "--chdir=/", "-Q", *program]


class Step(subprocess.Popen[bytes]):
    """srun, with signals for the program that it runs."""

    def __init__(self, host: Host, job: str, argv: Sequence[str], terminal: bool) -> None:
        """Start it. In a session of its own Ctrl-C reaches it by us alone; with a terminal of its own it is its key."""
        self.host, self.job = host, job
        # By a program of its own, because threads run already: between fork and exec nothing may be done then.
        dies_with_us = ["setpriv", "--pdeathsig", "TERM", "--", *argv]
        super().__init__(dies_with_us, env=user_environment(), cwd="/", start_new_session=not terminal)

    def send_signal(self, sig: int) -> None:
        """To the program."""
        with suppress(LeaseError):  # the watch sees the lease's end by itself
            self.host.slurm.run(["scancel", "--quiet", f"--signal={signal.Signals(sig).name[3:]}", self.job])

    def kill(self) -> None:
        """The program is killed, whatever it does: srun does so when it is told to end."""
        super().send_signal(signal.SIGTERM)


@contextmanager
def _signals_to(step: Step) -> Iterator[None]:
    """What is sent to us is the program's. Ctrl-C too, some times."""
    pressed = 0

    def forward(number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += number == signal.SIGINT
        if step.poll() is None:
            step.kill() if pressed > PATIENT else step.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, *FORWARDED)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_background() -> bool:
    """Whether the terminal is somebody else's now: a job of the shell's in the background."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return True  # a terminal that is none of ours


def start_and_wait(
    host: Host,
    argv: Sequence[str],
    endpoints: Sequence[LeaseEndpoint],
    say: Say,
    chosen: signal.Signals | None = None,
    patience_s: float = LOST_S,
    *,
    terminal: bool = False,
    folder: Path | None = None,
    synced: Path | None = None,
) -> int:
    """Run the program on the server of the lease, as running.start_and_wait runs it here: its exit code. folder: on
    the server; None: this one. synced: a folder that is copied there, to run in, and back."""
    (endpoint,) = endpoints
    if endpoint.where != "server":
        raise LeaseError(f"{endpoint.node} knows no programs on the server itself: other release; run site.yml")
    if terminal and not os.isatty(0):
        raise LeaseError("-t: there is no terminal here")
    named, folder = folder is not None, folder or Path.cwd()
    keepers, lost = keep(endpoints)
    copy = sync.Copy(synced, endpoint.node, partial(_beside, endpoint), user_environment()) if synced else None
    try:
        for keeper in keepers:
            keeper.start()
        if copy is not None:
            copy.send()
            named, folder = True, Path(copy.there)
        look(host, endpoint, folder, argv[0], named)
        step = Step(host, endpoint.job, command(endpoint, folder, argv, terminal, _in_background()), terminal)
        with _signals_to(step):
            code = Watch(host, endpoint.lease, keepers, lost, say, chosen, patience_s).wait(step)
        if copy is not None:
            copy.fetch()
        return code
    finally:
        for keeper in keepers:
            keeper.end()
