"""Collective operations between GPUs, or processors where there are none: bus bandwidth over sizes, data verified.

Runs on the launching node; mpirun starts one rank for each GPU in the nodes' training containers, as a training does,
and in an image without mpirun torchrun, by torch alone.
With nccl-tests where the container has them all with MPI, else by torch.distributed (collectives_rank.py), on GPUs by
NCCL and on processors by Gloo. What NCCL says of itself is in `stdout` and `stderr`, where the parser finds what it
took.

`stdout`: of torch one line of JSON from rank 0; of nccl-tests the output of each program after a line `== OPERATION`.
`facts`: tool ("torch" or "nccl-tests"), nccl_tests (its folder, "" without).
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from validation.measures.training.training_short_probe import (
    ENTER,
    MIN_PATH,
    PYTHON,
    TORCHRUN,
    in_container,
    mpi_transport,
    nccl_environment,
    nccl_variables,
    parts_of,
)
from validation.measures.training.training_short_probe import Asked as Training
from validation.probes import PROGRAM_FOLDER, ProbeDoc
from validation.probes.collectives_rank import OPS
from validation.probes.tool import Ran, document, group, run_tool

RANK = PROGRAM_FOLDER / "collectives_rank.py"
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_recv": "sendrecv_perf",
}
MARK = "== "


@dataclass
class Asked:
    """What is asked of this probe; the defaults are where the training role installs things."""

    ranks: int  # world size
    hosts: list[str]  # ADDRESS:SLOTS
    networks: list[str]  # of the launcher's traffic, CIDR
    ends: list[str]  # INTERFACE@ADDRESS: the fabric ports of all hosts, the first of rank 0's host first
    sizes: list[int]  # bytes of the larger buffer of a rank, each a multiple of the one before by the same factor
    ops: list[str] = field(default_factory=lambda: list(OPS))
    variables: list[str] = field(default_factory=list)  # NAME=VALUE for NCCL, beside what follows from the fabric
    iterations: int = 5  # of an operation in a block that is timed
    repeats: int = 5  # blocks, each a sample
    budget_s: float = 1.0  # of an operation at one size, after which fewer are done
    time_limit_s: int = 300  # mpirun ends the job after that time
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"
    device: Literal["any", "cpu", "gpu"] = "any"
    tool: Literal["any", "torch"] = "any"
    shared_cores: bool = False  # the nodes share cores: ranks yield when they wait
    meet_port: int = 29541  # where rank 0 waits for the others
    ssh_port: int = 50000
    ssh_config: str = "/etc/elastic-ai/training/ssh_config"
    torchrun: str = TORCHRUN  # the training role's, which starts it in an image without mpirun
    enter: str = ENTER  # runs a command in the training container
    python: str = PYTHON  # the container's; the default: the first python3 of its path


def _training(args: Asked) -> Training:
    base = Training(ranks=args.ranks, hosts=args.hosts, networks=args.networks, warmup=0, steps=0, batch=0)
    base.transport, base.ends = args.transport, args.ends
    return base


def mpirun(args: Asked, time_limit_s: int) -> list[str]:
    """mpirun as a training has it, up to the program; over the fabric alone."""
    base = _training(args)
    networks = ",".join(args.networks)
    command = ["mpirun", "-np", str(args.ranks), "-H", ",".join(args.hosts), "--bind-to", "none", "--map-by", "slot"]
    command += ["--mca", "plm_rsh_args", f"-p {args.ssh_port} -F {args.ssh_config}"]
    command += [*mpi_transport(base, networks), "--mca", "oob_tcp_if_include", networks]
    if args.shared_cores:
        command += ["--mca", "mpi_yield_when_idle", "1"]
    command += ["--timeout", str(time_limit_s), "-x", "OMP_NUM_THREADS=1", *nccl_environment(base)]
    command += [word for variable in args.variables for word in ("-x", variable)]
    command += [args.python, "-I", str(RANK), "--ends", ",".join(args.ends), "--transport", args.transport]
    return [*command, "--time-limit-s", str(time_limit_s)]


def torch_command(args: Asked) -> list[str]:
    """All operations in one job of torch."""
    address = args.ends[0].partition("@")[2]
    place = f"[{address}]" if ":" in address else address
    return [*mpirun(args, args.time_limit_s), "--meet", f"tcp://{place}:{args.meet_port}", *_measured(args)]


def torchrun_command(args: Asked) -> list[str]:
    """The same in an image without mpirun: by the training role's torchrun, with what mpirun would export."""
    command = [args.python, args.torchrun, "-H", ",".join(args.hosts), "--port", str(args.meet_port), "-I", str(RANK)]
    command += ["--ends", ",".join(args.ends), "--transport", args.transport, "--time-limit-s", str(args.time_limit_s)]
    given = [*nccl_variables(_training(args)), *args.variables]
    return [*command, *(word for variable in given for word in ("--set", variable)), *_measured(args)]


def _measured(args: Asked) -> list[str]:
    """What the ranks are to measure."""
    command = ["--device", args.device, "--ops", ",".join(args.ops)]
    command += ["--sizes", ",".join(map(str, args.sizes)), "--iterations", str(args.iterations)]
    return [*command, "--repeats", str(args.repeats), "--budget-s", str(args.budget_s)]


def tests_command(args: Asked, folder: str, op: str, suffix: str) -> list[str]:
    """One program of nccl-tests: one GPU for each rank, each element checked, no sizes but those asked."""
    sizes = args.sizes
    factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    program = [posixpath.join(folder, PROGRAMS[op] + suffix)]
    program += [
        "-b",
        str(sizes[0]),
        "-e",
        str(sizes[-1]),
        "-f",
        str(factor),
        "-g",
        "1",
        "-c",
        "1",
        "-n",
        str(args.iterations),
        "-w",
        "2",
    ]
    return [*mpirun(args, max(1, args.time_limit_s // len(args.ops))), "--run", *program]


def nccl_tests(args: Asked) -> tuple[str, str]:
    """Folder of nccl-tests in the container and the suffix of its programs; folder "" where one is not there.

    Without MPI each rank would be a job of its own. NVIDIA's images have both, those with MPI by their suffix.
    """
    if args.tool == "torch" or args.device == "cpu":
        return "", ""
    for suffix in ("_mpi", ""):
        found = run_tool([args.enter, "which", *(PROGRAMS[op] + suffix for op in args.ops)])
        folders = {posixpath.dirname(line) for line in found.stdout.split()}
        if found.returncode == 0 and len(folders) == 1:
            folder = folders.pop()
            linked = run_tool([args.enter, "ldd", posixpath.join(folder, PROGRAMS[args.ops[0]] + suffix)])
            if "libmpi" in linked.stdout:
                return folder, suffix
    return "", ""


def probe(args: Asked) -> ProbeDoc:
    """Measure every operation at every size."""
    environment = {"PATH": os.environ.get("PATH", MIN_PATH), "HOME": os.environ.get("HOME", "/")}
    unknown = [op for op in args.ops if op not in OPS]
    if unknown or not args.sizes or not args.ends or args.ranks < 2:
        return document("collectives", "torch", lambda: (Ran([], 0, "", ""), {}, "nothing to do"), lambda _: "")
    there = parts_of(args.enter)
    args = replace(args, python=there["python3"]) if there.get("python3") and args.python == PYTHON else args
    alone = bool(there) and not there["mpirun"]
    folder, suffix = ("", "") if alone else nccl_tests(args)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = {"tool": "nccl-tests" if folder else "torch", "nccl_tests": folder}
        if not folder:
            command = torchrun_command(args) if alone else torch_command(args)
            return run_tool(in_container(args.enter, command), env=environment), facts, None
        out, err = "", ""
        for op in args.ops:
            ran = run_tool(in_container(args.enter, tests_command(args, folder, op, suffix)), env=environment)
            out, err = f"{out}{MARK}{op}\n{ran.stdout}", err + ran.stderr
            if ran.returncode != 0:
                break
        return Ran(ran.command, ran.returncode, out, err), facts, None

    return document("collectives", "nccl-tests" if folder else "torch", measure, lambda ran: _version(ran.stdout))


def _version(stdout: str) -> str:
    return group(r'"torch": "([^"]+)"', stdout) or group(r"^# nccl-tests version (\S+)", stdout)
