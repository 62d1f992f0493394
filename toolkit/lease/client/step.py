"""A lease's program on the GPU server itself: a step of the lease's own job, which srun starts and speaks for.

The agent of the lease is there as for any lease: it keeps the time, tells of an early end, and ends the job when this
machine is gone. srun carries input, output and exit code; signals go by scancel, because srun keeps most for itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import folder_copies, ranks
from toolkit.lease.client.running import FORWARDED, LOST_S, Say, Watch
from toolkit.lease.endpoint import LATER, LeaseEndpoint
from toolkit.lease.heartbeat import keep
from toolkit.lease.jobs.slurm import AGAIN_PAUSE_S, AGAIN_S, PASSED_ON, said
from toolkit.lease.jobs.slurm_text import SlurmError, complaint_of
from toolkit.lease.machine.host import Host

#: So often Ctrl-C is passed on; the next one ends the program.
PATIENT = 2
#: What a step shares with the job's others: all that the job has. Messages of srun's own would be the program's.
_SHARED = ("--overlap", "--mem=0")
_STEP = (*_SHARED, "--nodes=1", "--ntasks=1", "--mpi=none")
#: Arguments: folder, what it is known by ("-": its name; a file in it; inode and time of change), program. Where the
#: program cannot run in it: the server and what it has not, in two words.
_LOOK = """
no() { echo "$SLURMD_NODENAME $1"; exit 1; }
cd -- "$1" 2>/dev/null || no no-folder
[ "$2" = - ] || [ -e "./$2" ] || [ "$(stat -L -c "%i %Y" .)" = "$2" ] || no other-folder
command -v "$3" >/dev/null || no no-program
"""


@dataclass(frozen=True)
class Lack:
    """What a server has not for a program."""

    node: str
    kind: Literal["no-folder", "other-folder", "no-program"]

    def words(self, folder: Path, program: str) -> str:
        """For its user."""
        of_kind = {
            "no-folder": f"no folder {folder}, or not for you",
            "other-folder": f"another folder {folder} than this machine",
            "no-program": f"no program {program}",
        }
        return f"{self.node} has {of_kind[self.kind]}"


_LACK = re.compile(r"(\S+) (no-folder|other-folder|no-program)")


def lacks(output: str) -> list[Lack]:
    """What _LOOK found on all servers, in order."""
    found = {Lack(match[1], cast(Any, match[2])) for match in map(_LACK.fullmatch, output.splitlines()) if match}
    return sorted(found, key=lambda one: (one.node, one.kind))


@dataclass(frozen=True)
class How:
    """How a program runs there. folder: on the server; None: this one. synced: a folder that is copied there, to run
    in, and back, except left_out in it (None: all of it). label: each line says whose it is. mpi: Slurm's kind of MPI,
    for processes that it starts. image: of a container that it runs in, with these of the user's variables. crowded:
    its processes are more than the lease's processors."""

    terminal: bool = False
    folder: Path | None = None
    synced: Path | None = None
    left_out: tuple[str, ...] | None = None
    start: ranks.StartMode = "server"
    label: bool = False
    mpi: str = "none"
    image: str = ""
    variables: tuple[str, ...] = ()
    crowded: bool = False


#: In this folder, without anything special.
HERE = How()


def _copies(folder: Path, endpoints: Sequence[LeaseEndpoint], left_out: Sequence[str] | None) -> folder_copies.Copies:
    """The folder's copies on all servers of the lease."""
    steps = {end.node: partial(_beside, end, endpoints) for end in endpoints}
    return folder_copies.Copies(folder, steps, user_environment(), left_out)


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


def _on(endpoint: LeaseEndpoint, among: Sequence[LeaseEndpoint]) -> list[str]:
    """srun's first words for one of the lease's servers."""
    where = [f"--nodelist={endpoint.node}"] if len(among) > 1 else []
    return ["srun", f"--jobid={endpoint.job}", *where, *_STEP]


def look(
    host: Host,
    endpoints: Sequence[LeaseEndpoint],
    folder: Path,
    program: str,
    named: bool = False,
    how: How = HERE,
) -> None:
    """That each server has the folder that is meant, the same as here (/ is everywhere; `named`: whatever is here), and
    the program in it. As a step of the program's own kind: what Slurm has against it is heard here, and with the
    program itself it says nothing."""
    everywhere = replace(how, start="server" if how.start == "once" else how.start, label=False)
    with ExitStack() as stack:
        mark = "-" if named or folder == Path("/") else _known_by(folder, stack)
        words = ["sh", "-c", _LOOK, "sh", str(folder), mark, *ranks.kept([program])]
        options = ["--quiet", "--chdir=/", "--input=none"]
        # A step for each group: as parts of one step srun sometimes never ends (ranks.all_end).
        for group in _groups(endpoints, everywhere):
            bare = shape(group, endpoints, everywhere, bare=True)
            found = _look_on(host, ["srun", f"--jobid={endpoints[0].job}", *bare, *options, *words])
            if found:
                by_folder = not named and found[0].kind != "no-program"
                hint = "; copy it there by --sync, or name one of the server's by --folder" if by_folder else ""
                raise LeaseError("; ".join(lack.words(folder, program) for lack in found) + hint)


def _look_on(host: Host, command_line: Sequence[str]) -> list[Lack]:
    """One step of `look`: what the servers have not."""
    until = host.clock.monotonic() + AGAIN_S
    while True:
        done = host.slurm.run(command_line, timeout_s=60)
        found = lacks(done.stdout)
        later = done.returncode and not found and complaint_of(said(done)) in LATER
        if not later or host.clock.monotonic() > until:
            break
        host.clock.sleep(AGAIN_PAUSE_S)
    if done.returncode and not found:
        raise SlurmError(said(done), Exit.RETRY)
    return found if done.returncode else []


def shape(group: Sequence[LeaseEndpoint], endpoints: Sequence[LeaseEndpoint], how: How, bare: bool) -> list[str]:
    """srun's options for the program's processes on a group of the lease's servers. bare: they have no GPUs."""
    each = ranks.processes(group[0], how.start)
    words = [*_SHARED, f"--nodes={len(group)}", f"--ntasks={len(group) * each}"]
    words += [f"--nodelist={','.join(end.node for end in group)}"] if len(group) < len(endpoints) else []
    words += [f"--ntasks-per-node={each}", f"--mpi={how.mpi}", *(["--overcommit"] if how.crowded else [])]
    if bare:
        words.append("--gres=none")
    elif ranks.unequal(endpoints):  # if nothing is said, all of the job's
        words.append(f"--gpus={sum(len(end.devices) for end in group)}")
    if not ranks.alone(endpoints, how.start):  # who fails first is our matter
        words += ["--kill-on-bad-exit=0", "--wait=0", "--distribution=block", *(["--label"] if how.label else [])]
    return words


def _groups(endpoints: Sequence[LeaseEndpoint], how: How) -> list[Sequence[LeaseEndpoint]]:
    """The servers that a program starts on, in one group, and where their numbers of GPUs differ each by itself: Slurm
    22.05 gives such servers of a step one GPU each, and the last the rest."""
    servers = endpoints[:1] if how.start == "once" else endpoints
    return [[end] for end in servers] if ranks.unequal(endpoints) else [servers]


def command(
    endpoints: Sequence[LeaseEndpoint],
    folder: Path,
    argv: Sequence[str],
    how: How,
    deaf: bool = False,
    mark: str = "",
) -> list[str]:
    """srun's command line. The GPUs by their UUIDs: Slurm's own numbers may begin anew in a step. deaf: no input."""
    first = [] if ranks.alone(endpoints, how.start) else ["--input=0"]  # it alone has the input
    heard = ["--pty"] if how.terminal else ["--input=none"] if deaf else first
    where = f"--chdir={folder}"
    plan = ranks.plan(endpoints, how.start, mark, how.image, how.variables, mpi=how.mpi)
    words = ["python3", "-I", "-c", ranks.HOLD, plan, *ranks.kept(argv)]
    found = ["srun", f"--jobid={endpoints[0].job}", "-Q", "-Q"]
    for number, group in enumerate(_groups(endpoints, how)):  # as parts of one step
        begins, hears = ([":"], ["--input=none"]) if number else ([], heard)
        found += [*begins, *shape(group, endpoints, how, bare=False), where, *hears, *words]
    return found


def _beside(endpoint: LeaseEndpoint, among: Sequence[LeaseEndpoint], program: Sequence[str]) -> list[str]:
    """srun's command line of a program that serves the lease's own: no GPU, its input and output are its caller's."""
    return [*_on(endpoint, among), "--gres=none", "--chdir=/", "-Q", *program]


class Step(subprocess.Popen[bytes]):
    """srun, with signals for the program that it runs."""

    def __init__(self, host: Host, job: str, argv: Sequence[str], terminal: bool, heard: bool = False) -> None:
        """Start it. In a session of its own Ctrl-C reaches it by us alone; with a terminal of its own it is its key.
        heard: its stderr comes through us."""
        self.host, self.job = host, job
        # By a program of its own, because threads run already: between fork and exec nothing may be done then.
        dies_with_us = ["setpriv", "--pdeathsig", "TERM", "--", *argv]
        said_to = subprocess.PIPE if heard else None
        own = not terminal
        super().__init__(dies_with_us, env=user_environment(), cwd="/", start_new_session=own, stderr=said_to)

    def send_signal(self, sig: int) -> None:
        """To the program."""
        with suppress(LeaseError):  # the watch sees the lease's end by itself
            self.host.slurm.run(["scancel", "--quiet", f"--signal={signal.Signals(sig).name[3:]}", self.job])

    def kill(self) -> None:
        """The program is killed, whatever it does: srun does so when it is asked to end."""
        super().send_signal(signal.SIGTERM)

    def give_up(self) -> None:
        """srun alone is killed: the program has ended."""
        super().send_signal(signal.SIGKILL)


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
    how: How = HERE,
) -> int:
    """Run the program on the servers of the lease, as running.start_and_wait runs it here: its exit code; of several
    processes that of the first that failed."""
    for endpoint in endpoints:
        if endpoint.where != "server":
            raise LeaseError(f"{endpoint.node} knows no programs on the server itself: other release; run site.yml")
    if how.terminal and not os.isatty(0):
        raise LeaseError("-t: there is no terminal here")
    named, folder = how.folder is not None, how.folder or Path.cwd()
    alone = ranks.alone(endpoints, how.start)
    if how.terminal and not alone:
        raise LeaseError("-t: a terminal is for one process, and these are several")
    keepers, lost = keep(endpoints)
    copies = _copies(how.synced, endpoints, how.left_out) if how.synced else None
    mark = "" if alone else ranks.new_mark()
    try:
        for keeper in keepers:
            keeper.start()
        if copies is not None:
            copies.send()
            named, folder = True, Path(copies.there)
            say(f"{how.synced} is on {', '.join(end.node for end in endpoints)} in {folder} until it is back")
        try:
            look(host, endpoints, folder, "sh" if how.image else argv[0], named, how)
        except BaseException:
            if copies is not None:
                copies.remove()
            raise
        words = command(endpoints, folder, argv, how, _in_background(), mark)
        step = Step(host, endpoints[0].job, words, how.terminal, not alone)
        watcher = None if alone else ranks.FirstFailure(step, mark, say, ranks.all_end(endpoints, how.start, how.mpi))
        if watcher is not None:
            watcher.start()
        with _signals_to(step):
            code = Watch(host, endpoints[0].lease, keepers, lost, say, chosen, patience_s).wait(step)
        if copies is not None:
            copies.fetch(say)
        return ranks.through(watcher, code)
    finally:
        for keeper in keepers:
            keeper.end()
