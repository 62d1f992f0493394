"""One program on several servers, or once for each GPU: how its processes find each other, and which failed first.

A small parent (HOLD) is around every process on the servers. What a process needs to know is in its environment, by the
names that PyTorch's launcher and MPI read; torchrun takes its own options from PET_...
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from signal import SIGTERM
from typing import IO, Any, Literal, Protocol

from toolkit.lease.container_forms import wish_words
from toolkit.lease.endpoint import LeaseEndpoint, gpus_text

#: A program is started once on each server, for each GPU, or once, and then reaches the other servers by itself.
StartMode = Literal["server", "gpu", "once"]
#: Where processes meet: below the ports that a kernel gives out (32768), above those of leases (23999). By the lease's
#: number, so that two programs that have the same first server do not meet each other.
MEET_PORT, MEET_PORTS = 24000, 8000
#: Processes that go on when another has failed are told to end, and after so many seconds killed.
GRACE_S = 10.0
#: So long srun has to end when all processes have said that they have ended; usually it takes milliseconds.
ENDS_S = 5.0

#: Around the program there: what it started ends with it, also where Slurm loses sight of a process whose parent has
#: ended (no cgroups). Slurm's signals reach all processes of a step, so that this one takes no notice of them. 36 is
#: PR_SET_CHILD_SUBREAPER. Arguments: `plan` as JSON, program. The file of hosts is in memory: it goes with this one.
HOLD = """
import ctypes, json, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
    signal.signal(signal.Signals["SIG" + name], lambda *_: None)
plan, nodes = json.loads(sys.argv[1]), json.loads(sys.argv[1])["nodes"]
name = os.environ.get("SLURMD_NODENAME", "")
name = name if name in nodes else next(iter(nodes))
env = dict(os.environ, **nodes[name])
rank = int(env["NODE_RANK"])
if plan["start"] == "gpu":
    local = int(os.environ.get("SLURM_LOCALID", 0))
    rank = plan["ranks"][name] + local
    env.update(RANK=str(rank), LOCAL_RANK=str(local))
keep = ()
if plan["hosts"] and not plan["helper"]:
    keep = (os.memfd_create("hosts", 0),)
    os.write(keep[0], plan["hosts"].encode())
    path = "/proc/%d/fd/%d" % (os.getpid(), keep[0])
    env.update({key: path for key in plan["host_files"]})
for path in ("/etc/openmpi/openmpi-mca-params.conf", os.path.expanduser("~/.openmpi/mca-params.conf")):
    try:
        chosen = any("tcp_if_" in line.split("#")[0] for line in open(path))
    except OSError:
        chosen = False
    for key in plan["networks"] if chosen else ():
        env.pop(key, None)
env.update(plan["job"])
words = [word[1:] if word.lstrip("=") == ":" else word for word in sys.argv[2:]]
if plan["helper"]:
    told = {key: env[key] for key in (*nodes[name], "RANK", "LOCAL_RANK", *plan["variables"]) if key in env}
    keep = (os.memfd_create("environment", 0),)
    os.write(keep[0], json.dumps(told).encode())
    path = "/proc/%d/fd/%d" % (os.getpid(), keep[0])
    terminal = ["--tty"] if os.isatty(0) else []
    words = [*plan["helper"], "--folder=" + os.getcwd(), "--environment=" + path, *terminal, "--", *words]
try:
    program = subprocess.Popen(words, env=env)
    code = program.wait()
    code = code if code >= 0 else 128 - code
except OSError as fault:
    print(words[0] + ": " + fault.strerror, file=sys.stderr)
    code = 1
if (code or plan["ends"]) and plan["mark"]:
    os.write(2, ("%s %s %d %d\\0\\n" % (plan["mark"], name, rank, code)).encode())
while True:
    for pid in open("/proc/self/task/%d/children" % os.getpid()).read().split():
        os.kill(int(pid), signal.SIGKILL)
    try:
        os.wait()
    except ChildProcessError:
        break
sys.exit(code)
"""
#: Open MPI on several servers would take Docker's bridge, which has the same address on each, for a network between
#: them, and wait for ever (seen with 4.1.4). What a user or a file of Open MPI's chooses goes before; include and
#: exclude together are an error of its.
NETWORKS = {f"OMPI_MCA_{kind}_tcp_if_exclude": "127.0.0.0/8,docker0" for kind in ("btl", "oob")}
#: Variables by which launchers find a file with the lease's servers: ours, Open MPI 4 and 5, MPICH.
HOST_FILES = (
    "ELASTIC_AI_HOSTFILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "HYDRA_HOST_FILE",
)


def new_mark() -> str:
    """What a failed process writes before its name and exit code; nothing else writes it by chance."""
    return f"\0elastic-ai-{secrets.token_hex(8)}"


def processes(endpoint: LeaseEndpoint, start: StartMode) -> int:
    """How many there are on a server."""
    return len(endpoint.devices) if start == "gpu" else 1


def alone(endpoints: Sequence[LeaseEndpoint], start: StartMode) -> bool:
    """Whether the program is one process."""
    return start == "once" or sum(processes(endpoint, start) for endpoint in endpoints) == 1


def unequal(endpoints: Sequence[LeaseEndpoint]) -> bool:
    """Whether the servers have different numbers of GPUs."""
    return len({len(endpoint.devices) for endpoint in endpoints}) > 1


def all_end(endpoints: Sequence[LeaseEndpoint], start: StartMode, mpi: str) -> int:
    """How many processes say that they have ended, 0: only those that fail. srun of Slurm 22.05 waits twice for one
    thread of its PMIx when a step has several parts, and then sometimes (1 of 20 to 300 times) never ends."""
    return sum(processes(end, start) for end in endpoints) if unequal(endpoints) and mpi != "none" else 0


def kept(argv: Sequence[str]) -> list[str]:
    """A program's words for srun, which takes a lone colon for the end of one program and the beginning of another;
    HOLD gives them back."""
    return ["=" + word if word.lstrip("=") == ":" else word for word in argv]


def _of_server(
    endpoints: Sequence[LeaseEndpoint], number: int, start: StartMode, mine: Mapping[str, str]
) -> dict[str, str]:
    """What the processes of one server are told. mine: the user's own environment, which goes before a chosen port."""
    endpoint, first = endpoints[number], endpoints[0]
    each, count = len(endpoint.devices), len(endpoints)
    world = sum(len(end.devices) for end in endpoints)
    address, port = first.address, mine.get("MASTER_PORT") or str(MEET_PORT + first.lease % MEET_PORTS)
    told = {
        "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device in endpoint.devices),
        "ELASTIC_AI_LEASE": str(endpoint.lease),
        "ELASTIC_AI_GPUS": gpus_text([endpoint]),
        "NODE_RANK": str(number),
    }
    if world == 1:
        return told | ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"} if start == "gpu" else {})
    told |= {"NNODES": str(count), "MASTER_ADDR": address, "MASTER_PORT": port, "LOCAL_WORLD_SIZE": str(each)}
    told |= {"ELASTIC_AI_WORLD_SIZE": str(world)}
    if count > 1 and not any("tcp_if_" in name for name in mine):
        told |= NETWORKS
    if start == "gpu":
        return told | {"WORLD_SIZE": str(world)}
    meets = {"NNODES": count, "NODE_RANK": number, "NPROC_PER_NODE": each, "MASTER_ADDR": address, "MASTER_PORT": port}
    return told | {f"PET_{key}": str(value) for key, value in meets.items() if start == "server"}


def _as_a_job(endpoints: Sequence[LeaseEndpoint], start: StartMode, mpi: str) -> dict[str, str]:
    """What a program that starts the others is told by Slurm's own variables, by which mpirun knows its servers and how
    many processes each of them is for. Of a step of one process Slurm itself would say that it is for one."""
    if start == "gpu" or mpi != "none" or (start == "server" and len(endpoints) > 1):
        return {}
    nodes, gpus = ",".join(end.node for end in endpoints), [len(end.devices) for end in endpoints]
    told = {"SLURM_NODELIST": nodes, "SLURM_JOB_NODELIST": nodes, "SLURM_NNODES": str(len(endpoints))}
    each = ",".join(f"{number}(x{len(list(servers))})" for number, servers in groupby(gpus))
    told |= {"SLURM_TASKS_PER_NODE": each, "SLURM_NTASKS": str(sum(gpus))}
    if unequal(endpoints):  # a step on fewer servers that asks for no number would ask for all of the job's GPUs
        told["SLURM_GPUS"] = str(sum(gpus[1:]))
    return told | {"SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0"}  # its steps are beside its own


def plan(
    endpoints: Sequence[LeaseEndpoint],
    start: StartMode,
    mark: str,
    image: str = "",
    variables: Sequence[str] = (),
    mine: Mapping[str, str] = os.environ,
    mpi: str = "none",
) -> str:
    """HOLD's first argument. Slots of hosts are GPUs, in the form of MPI's files of hosts. image: the program runs in a
    container of it, with these variables of the user's."""
    hosts = "".join(f"{end.address} slots={len(end.devices)}\n" for end in endpoints)
    told: dict[str, Any] = {
        "start": start,
        "nodes": {end.node: _of_server(endpoints, number, start, mine) for number, end in enumerate(endpoints)},
        "ranks": {end.node: sum(len(before.devices) for before in endpoints[:n]) for n, end in enumerate(endpoints)},
        "hosts": hosts if len(endpoints) > 1 else "",
        "host_files": HOST_FILES,
        "networks": list(NETWORKS),
        "job": _as_a_job(endpoints, start, mpi),
        "mark": mark,
        "ends": bool(all_end(endpoints, start, mpi)),
        "helper": wish_words(endpoints[0].job, image) if image else [],
        "variables": list(variables),
    }
    return json.dumps(told)


class _Step(Protocol):
    """The step that the processes are."""

    stderr: IO[bytes] | None

    def send_signal(self, sig: int) -> None:
        """To all of them."""

    def kill(self) -> None:
        """All of them."""

    def give_up(self) -> None:
        """What runs them: they have ended."""


class FirstFailure(threading.Thread):
    """Passes on what the processes say on stderr, and ends the others when the first of them has failed: `code`. Where
    all say that they have ended, what runs them is waited for no longer than srun needs: `complete`."""

    def __init__(
        self, step: _Step, mark: str, say: Callable[[str], None], all_end: int = 0, grace_s: float = GRACE_S
    ) -> None:
        """Nothing is read yet. all_end: so many processes say that they have ended; grace_s: between the request to end
        and the kill."""
        super().__init__(daemon=True, name="first-failure")
        self.step, self.say, self.code = step, say, 0
        self.complete, self._to_come = False, all_end
        #: With srun's label where the mark begins a line.
        words = re.escape(mark.encode())
        self._mark = re.compile(rb"(?:(?<=\n)|\A)(?: *\d+: )?" + words + rb" (\S+) (\d+) (\d+)\0\n|" + words
                                + rb" (\S+) (\d+) (\d+)\0\n")  # fmt: skip
        self._begins = mark[:1].encode()
        self._timer = threading.Timer(grace_s, self._kill)
        self._timer.daemon = True
        self._over = threading.Event()

    def _kill(self) -> None:
        with suppress(OSError):
            self.step.kill()

    def _give_up(self) -> None:
        """As soon as it has had its time, and nobody who reads slowly keeps it from passing on what was said."""
        reader = select.poll()
        reader.register(1, select.POLLOUT)
        while not self._over.wait(ENDS_S):
            if reader.poll(0):  # also where nobody reads any more
                self.complete = True
                with suppress(OSError):
                    self.step.give_up()
                return

    def _failed(self, match: re.Match[bytes]) -> bytes:
        node, rank, code = (word.decode(errors="replace") for word in match.groups() if word is not None)
        self._to_come -= 1
        if not self._to_come:
            threading.Thread(target=self._give_up, daemon=True, name="give-up").start()
        if not self.code and int(code):
            self.code = int(code)
            self.say(f"process {rank} on {node} ended with exit code {code}; the others are ended")
            self._timer.start()
            self.step.send_signal(SIGTERM)
        return b""

    def run(self) -> None:
        """Until srun closes its end. A mark may come in two pieces."""
        assert self.step.stderr is not None
        kept, read = b"", self.step.stderr.fileno()
        while True:
            data = os.read(read, 65536)
            kept = self._mark.sub(self._failed, kept + data)
            held = kept.rfind(self._begins) if data else -1
            held = held if held >= 0 and b"\n" not in kept[held:] and len(kept) - held < 512 else len(kept)
            # A label before the mark waits with it.
            line = kept.rfind(b"\n", 0, held) + 1
            if held < len(kept) and re.fullmatch(rb" *\d+: ", kept[line:held]):
                held = line
            passes, kept = kept[:held], kept[held:]
            with suppress(OSError):  # nobody reads us any more
                while passes:
                    passes = passes[os.write(2, passes) :]
            if not data:
                self._timer.cancel()
                self._over.set()
                return


def through(watcher: FirstFailure | None, code: int) -> int:
    """The exit code of the whole: that of the process that failed first, where one did."""
    if watcher is None:
        return code
    watcher.join(GRACE_S)
    return watcher.code or (0 if watcher.complete else code)
