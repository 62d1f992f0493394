"""A short data-parallel training over several nodes, launched with mpirun as the reference architecture does.

Runs on the launching node, mpirun and its ranks in the nodes' training containers. They belong to an unprivileged user
of their own and reach the other nodes through that user's key and the training sshd's port, never the operator's.

Over TCP Open MPI is told so; over RDMA it has UCX and UCX no TCP, so that nothing can fall back to it unseen. What
the libraries say of themselves at level *info* is in `stdout` and `stderr`, where the parser finds what they took.

`stdout`: mpirun's output, in it one line of JSON from rank 0. `facts`: that line's fields: world_size, hosts (one per
rank), batch, warmup, steps, step_s (list of float, slowest rank's time of each step), images_per_s (list of float,
whole job, one per measured step), losses (list of float, mean of the ranks, one per step with warm-up), loss_first,
loss_last, loss_finite, parameters, threads, python, torch, horovod, and mpi (mpirun's version).
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, group, run_tool

PROGRAM = Path(__file__).with_name("train_cnn.py")
ENTER = "/usr/local/bin/elastic-ai-training-exec"
MIN_PATH = "/usr/local/bin:/usr/bin:/bin"
UCX_TRANSPORTS = "rc,ud,sm,self"  # between nodes RDMA alone, within one shared memory
TOLD_RANKS = 64  # up to here each rank tells what it takes to each other over TCP: a line for each two of them


@dataclass
class Asked:
    """What is asked of this probe; the defaults are where the training role installs things."""

    ranks: int  # world size
    hosts: list[str]  # ADDRESS:SLOTS
    networks: list[str]  # of MPI's traffic, CIDR
    warmup: int  # steps that do not count
    steps: int  # measured steps
    batch: int  # images per rank and step
    time_limit_s: int = 300  # mpirun ends the job after that time
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"  # what carries the training between nodes
    ends: list[str] = field(default_factory=list)  # INTERFACE@ADDRESS: the fabric port of each host
    shared_cores: bool = False  # the nodes share cores: ranks yield when they wait
    ssh_port: int = 50000
    ssh_config: str = "/etc/elastic-ai/training/ssh_config"
    enter: str = ENTER  # runs a command in the training container
    python: str = "/usr/bin/python3"  # the container's


def command_for(args: Asked) -> list[str]:
    """The whitepaper's mpirun line, over the fabric alone: over RDMA where it has that, else over TCP."""
    networks = ",".join(args.networks)
    command = ["mpirun", "-np", str(args.ranks), "-H", ",".join(args.hosts), "--bind-to", "none", "--map-by", "slot"]
    command += ["--mca", "plm_rsh_args", f"-p {args.ssh_port} -F {args.ssh_config}"]
    command += mpi_transport(args, networks)
    # Without these Open MPI tries every interface that is up, docker0 included, which is the same on every node.
    command += ["--mca", "oob_tcp_if_include", networks]
    if args.shared_cores:
        # Open MPI's ranks spin while they wait and know only of their own node: on virtual nodes of one host they
        # would take the cores from those that they wait for.
        command += ["--mca", "mpi_yield_when_idle", "1"]
    command += ["--timeout", str(args.time_limit_s), "-x", "OMP_NUM_THREADS=1"]
    command += nccl_environment(args)
    command += [args.python, "-I", str(PROGRAM), "--warmup", str(args.warmup), "--steps", str(args.steps)]
    command += ["--batch", str(args.batch), "--time-limit-s", str(args.time_limit_s)]
    if args.transport != "tcp":
        command += ["--transport", args.transport, "--ends", ",".join(args.ends)]
    return command


def mpi_transport(args: Asked, networks: str) -> list[str]:
    """What Open MPI carries messages with. `any`: without it UCX is turned down on cards that are not Mellanox's."""
    if args.transport == "tcp":
        told = ["--mca", "btl_base_verbose", "1"] if args.ranks <= TOLD_RANKS else []
        return ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", networks, *told]
    command = ["--mca", "pml", "ucx", "--mca", "btl", "self"]
    command += ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
    return [*command, "-x", f"UCX_TLS={UCX_TRANSPORTS}", "-x", "UCX_LOG_LEVEL=info"]


def nccl_environment(args: Asked) -> list[str]:
    """NCCL's variables, for training on GPUs. Each rank names its own node's device: train_cnn.py."""
    interfaces = dict.fromkeys(end.partition("@")[0] for end in args.ends)
    given = [f"NCCL_IB_DISABLE={int(args.transport == 'tcp')}", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,ENV"]
    given += [f"NCCL_SOCKET_IFNAME=={','.join(interfaces)}"] if interfaces else []
    return [word for variable in given for word in ("-x", variable)]


def in_container(enter: str, command: list[str]) -> list[str]:
    """`command` in the training container as the training user; dies with its parent as everything else here.

    Entering the container becomes the command, so that signals reach it. Changing the user clears the request to be
    killed with the parent, so setpriv makes it anew.
    """
    return [enter, "setpriv", "--pdeathsig", "KILL", "--", *command]


def report_of(stdout: str) -> dict[str, Any]:
    """Rank 0's line of JSON; ValueError unless there is exactly one."""
    lines = [line for line in stdout.splitlines() if line.startswith('{"world_size"')]
    if len(lines) != 1:
        raise ValueError(f"the job printed {len(lines)} reports instead of one")
    report: dict[str, Any] = json.loads(lines[0])
    return report


def wrong(args: Asked, report: dict[str, Any]) -> str | None:
    """What the job did other than asked, in words; None when it did everything."""
    placed = sorted(Counter(report["hosts"]).values())
    asked = sorted(int(host.rsplit(":", 1)[1]) for host in args.hosts)
    rates = report["images_per_s"]
    checks = [
        (report["world_size"] == args.ranks, f"ran with {report['world_size']} ranks instead of {args.ranks}"),
        (placed == asked or sum(asked) > args.ranks, f"placed its ranks as {placed} instead of {asked}"),
        (len(rates) == args.steps, f"measured {len(rates)} steps instead of {args.steps}"),
        (report["warmup"] == args.warmup and report["batch"] == args.batch, "used another warm-up or batch size"),
        (all(math.isfinite(r) and r > 0 for r in rates), "reported a rate that is not a number"),
        (report["loss_finite"], "had a loss that is not a number"),
        (report["loss_last"] < report["loss_first"], "did not learn: the loss did not fall"),
        (report["ranks_agree"], "ended with different parameters on different ranks"),
    ]
    faults = [text for good, text in checks if not good]
    return "the training " + ", ".join(faults) if faults else None


def probe(args: Asked) -> ProbeDoc:
    """Train for `warmup` + `steps` steps; images/s of the whole job for each measured step."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        command = in_container(args.enter, command_for(args))
        environment = {"PATH": os.environ.get("PATH", MIN_PATH), "HOME": os.environ.get("HOME", "/")}
        ran = run_tool(command, env=environment)
        if ran.returncode != 0:
            return ran, {}, None
        try:
            facts = report_of(ran.stdout)
            error = wrong(args, facts)
        except (ValueError, KeyError, TypeError) as fault:
            return ran, {}, f"the training's report cannot be used: {type(fault).__name__}: {fault}"
        facts["mpi"] = group(r"\(Open MPI\)\s+(\S+)", run_tool([args.enter, "mpirun", "--version"]).stdout)
        return ran, facts, error

    return document("training-short", "horovod", measure, lambda ran: _version(ran.stdout))


def _version(stdout: str) -> str:
    try:
        return str(report_of(stdout)["horovod"])
    except (ValueError, KeyError):
        return ""
