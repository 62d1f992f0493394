"""A short data-parallel training over several nodes, launched with mpirun as the reference architecture does.

Runs on the launching node, mpirun and its ranks in the nodes' training containers. They belong to an unprivileged user
of their own and reach the other nodes through that user's key and the training sshd's port, never the operator's.

Over TCP Open MPI is told so; over RDMA it has UCX and UCX no TCP, so that nothing can fall back to it unseen. What
the libraries say of themselves at level *info* is in `stdout` and `stderr`, where the parser finds what they took.
On one machine by itself there is no launcher but torch's own. In an image without mpirun, as a vendor may deliver it,
torchrun launches the job in its place, and the report says so (`launcher`).

`stdout`: mpirun's output, in it one line of JSON from rank 0. `facts`: that line's fields, which train_cnn.py makes:
world_size, hosts and devices (one per rank), model, precision, products (how many came out in which type), batch,
warmup, steps, step_s (list of float, slowest rank's time of each step), images_per_s (list of float, whole job, one per
measured step), input_s, compute_s and allreduce_s (list of float, mean of the ranks), losses (list of float, mean of
the ranks, one per step with warm-up), loss_first, loss_last, loss_finite, parameters, threads, python, torch,
framework, launcher, horovod, and mpi (mpirun's version). `cannot` alone where a batch does not fit into memory.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from validation.base.counting import number_of
from validation.probes import PROGRAM_FOLDER, ProbeDoc
from validation.probes.tool import Ran, document, group, run_tool
from validation.probes.train_networks import SMALL
from validation.probes.train_parts import MARK, mixed
from validation.probes.train_trouble import NO_MPIRUN, trouble

PROGRAM = PROGRAM_FOLDER / "train_cnn.py"
PROGRAM_TF = PROGRAM_FOLDER / "train_tf.py"
PARTS = PROGRAM_FOLDER / "train_parts.py"
ENTER = "/usr/local/bin/elastic-ai-training-exec"
PYTHON = "/usr/bin/python3"
TORCHRUN = "/etc/elastic-ai/training/torchrun.py"
MONITOR_S = 0.1  # how often torchrun looks whether its ranks have ended: by itself an older one looks every 5 s
MIN_PATH = "/usr/local/bin:/usr/bin:/bin"
HAS = "command -v python3; command -v mpirun; echo looked"
UCX_TRANSPORTS = "rc,ud,sm,self"  # between nodes RDMA alone, within one shared memory
NO_MEMORY = "out of memory"
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
    model: str = SMALL  # of train_networks.NETWORKS
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    device: Literal["any", "cpu", "gpu"] = "any"
    framework: Literal["auto", "horovod", "ddp", "tensorflow"] = "auto"  # auto: torch, with Horovod where there is some
    launcher: Literal["mpirun", "torchrun"] = "mpirun"  # torchrun: torch's own
    torchrun: str = TORCHRUN  # which starts it on several hosts
    meet_port: int = 29542  # of ddp: where rank 0 waits for the others
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"  # what carries the training between nodes
    ends: list[str] = field(default_factory=list)  # INTERFACE@ADDRESS: the fabric port of each host
    shared_cores: bool = False  # the nodes share cores: ranks yield when they wait
    images: Literal["synthetic", "real"] = "synthetic"  # real: of files, read and decoded while the job trains
    data: str = ""  # folder of pictures for real images; "": of the program's own
    cores: int = 0  # processors of each rank; 0: all that it may use
    variables: list[str] = field(default_factory=list)  # of NCCL: NAME=VALUE
    ssh_port: int = 50000
    ssh_config: str = "/etc/elastic-ai/training/ssh_config"
    enter: str = ENTER  # runs a command in the training container
    python: str = PYTHON  # the container's; the default: the first python3 of its path


Job = TypeVar("Job", bound=Asked)


def program(args: Asked, framework: str) -> list[str]:
    """The training program and its arguments."""
    own = PROGRAM_TF if framework == "tensorflow" else PROGRAM
    words = [str(own), "--warmup", str(args.warmup), "--steps", str(args.steps), "--batch", str(args.batch)]
    words += ["--time-limit-s", str(args.time_limit_s), "--model", args.model, "--precision", args.precision]
    words += ["--images", args.images] if args.images != "synthetic" else []
    words += ["--data", args.data] if args.data else []
    words += ["--cores", str(args.cores)] if args.cores else []
    words += ["--device", args.device]
    return words if own is PROGRAM_TF else [*words, "--framework", framework]


def command_for(args: Asked, words: Callable[[str], list[str]] | None = None) -> list[str]:
    """The whitepaper's mpirun line, over the fabric alone: over RDMA where it has that, else over TCP.

    `words`: another program with its arguments, by framework.
    """
    words = words or (lambda framework: program(args, framework))
    if args.launcher == "torchrun":
        if args.enter:  # its first host may be another one than this
            return _torchrun(args, words("ddp"))
        if args.ranks == 1:
            return [args.python, "-I", *words("none")]
        run = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(args.ranks)]
        return [args.python, *run, f"--monitor_interval={MONITOR_S}", *words("ddp")]
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
    command += [args.python, "-I", *words(args.framework)]
    if args.ends:
        address = args.ends[0].partition("@")[2]
        place = f"[{address}]" if ":" in address else address
        command += ["--meet", f"tcp://{place}:{args.meet_port}"]
        command += ["--transport", args.transport] if args.transport != "tcp" else []
        command += ["--ends", ",".join(args.ends)]
    return command


def _torchrun(args: Asked, words: list[str]) -> list[str]:
    """The training role's launcher, torchrun on every host; what mpirun would export is given to the program."""
    run = [args.python, args.torchrun, "-H", ",".join(args.hosts), "--port", str(args.meet_port)]
    given = [word for variable in nccl_variables(args) for word in ("--set", variable)]
    told = ["--transport", args.transport] if args.transport != "tcp" else []
    return [*run, "-I", *words, *given, *told, "--ends", ",".join(args.ends)]


def mpi_transport(args: Asked, networks: str) -> list[str]:
    """What Open MPI carries messages with. `any`: without it UCX is turned down on cards that are not Mellanox's."""
    if args.transport == "tcp":
        told = ["--mca", "btl_base_verbose", "1"] if args.ranks <= TOLD_RANKS else []
        return ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", networks, *told]
    command = ["--mca", "pml", "ucx", "--mca", "btl", "self"]
    command += ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
    return [*command, "-x", f"UCX_TLS={UCX_TRANSPORTS}", "-x", "UCX_LOG_LEVEL=info"]


def nccl_variables(args: Asked) -> list[str]:
    """NCCL's, NAME=VALUE, for training on GPUs. Each rank names its own node's device: train_world.py."""
    interfaces = dict.fromkeys(end.partition("@")[0] for end in args.ends)
    given = [f"NCCL_IB_DISABLE={int(args.transport == 'tcp')}", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,ENV"]
    given += [f"NCCL_SOCKET_IFNAME=={','.join(interfaces)}"] if interfaces else []
    return [*given, *args.variables]


def nccl_environment(args: Asked) -> list[str]:
    """The same as mpirun takes them."""
    return [word for variable in nccl_variables(args) for word in ("-x", variable)]


def in_container(enter: str, command: list[str]) -> list[str]:
    """`command` in the training container as the training user; dies with its parent as everything else here.

    Entering the container becomes the command, so that signals reach it. Changing the user clears the request to be
    killed with the parent, so setpriv makes it anew.
    """
    return [enter, "setpriv", "--pdeathsig", "KILL", "--", *command]


def parts_of(enter: str) -> dict[str, str]:
    """Where the training container has python3 and mpirun, by name; empty where it cannot be entered.

    Without mpirun: {"mpirun": ""}.
    """
    ran = run_tool([enter, "sh", "-c", HAS])
    lines = ran.stdout.splitlines()
    if ran.returncode or lines[-1:] != ["looked"]:
        return {}
    found = {line.rpartition("/")[2]: line for line in lines if line.startswith("/")}
    return {name: found.get(name, "") for name in ("python3", "mpirun")}


def launched(args: Job) -> Job:
    """The job as the training container can launch it: by torchrun where it has no mpirun."""
    if not args.enter or args.launcher != "mpirun":
        return args
    there = parts_of(args.enter)
    python = there.get("python3") or args.python
    job = replace(args, python=python if args.python == PYTHON else args.python)
    return replace(job, launcher="torchrun") if there and not there["mpirun"] else job


def alike(args: Asked) -> tuple[Ran | None, str | None]:
    """How it ended that the servers were asked what they have, and what is wrong; (None, None) where they can train.

    Without it ranks of Horovod and of torch would wait for each other until the job's time is over. One server by
    itself is asked where TensorFlow is wanted, which most images have not.
    """
    by_mpirun = {"horovod": "Horovod", "tensorflow": "TensorFlow"}.get(args.framework)
    if args.launcher == "torchrun" and by_mpirun:
        return Ran([], 0, "", ""), f"{by_mpirun} is asked for, and {NO_MPIRUN} to launch it"
    if args.framework == "tensorflow" and (args.images != "synthetic" or args.cores):
        return Ran([], 0, "", ""), "TensorFlow trains on synthetic images alone here"
    alone = len(args.hosts) < 2 and args.framework != "tensorflow"
    if alone or (args.launcher == "torchrun" and not args.enter):
        return None, None
    command = command_for(args)
    last = "-I" if args.launcher == "torchrun" else args.python
    head = command[: command.index(last)]
    if args.launcher == "mpirun":
        head[head.index("-np") + 1] = str(len(args.hosts))
    head[head.index("-H") + 1] = ",".join(f"{host.rpartition(':')[0]}:1" for host in args.hosts)
    words = [*head, *([args.python] if args.launcher == "mpirun" else []), "-I", str(PARTS)]
    ran = run_tool(in_container(args.enter, words) if args.enter else words, env=_environment(args))
    if ran.returncode:
        return ran, None
    try:
        told = [json.loads(line[len(MARK) :]) for line in ran.stdout.splitlines() if line.startswith(MARK)]
        if len(told) != len(args.hosts):
            return ran, f"{len(told)} of {number_of(len(args.hosts), 'server')} said what they train with"
        why = mixed(told, "ddp" if args.launcher == "torchrun" else args.framework)
    except (ValueError, KeyError, TypeError) as fault:
        return ran, f"what the servers train with cannot be read: {type(fault).__name__}: {fault}"
    return (ran, why) if why else (None, None)


def _environment(args: Asked) -> dict[str, str]:
    """Without a container torch needs what whoever started this has set for it, as where CUDA's libraries are."""
    if not args.enter:
        return dict(os.environ)
    return {"PATH": os.environ.get("PATH", MIN_PATH), "HOME": os.environ.get("HOME", "/")}


REPORT = '{"world_size"'
"""How rank 0's line begins: libraries may print JSON of their own."""


def report_of(stdout: str) -> dict[str, Any]:
    """Rank 0's line of JSON; ValueError unless there is exactly one."""
    lines = [line for line in stdout.splitlines() if line.startswith(REPORT)]
    if len(lines) != 1:
        raise ValueError(f"the job printed {len(lines)} reports instead of one")
    report: dict[str, Any] = json.loads(lines[0])
    return report


def wrong(args: Asked, report: dict[str, Any]) -> str | None:
    """What the job did other than asked, in words; None when it did everything, or found that it does not fit."""
    cannot = str(report.get("cannot", ""))
    if cannot:
        return None if cannot.startswith(NO_MEMORY) else f"{args.model} was not trained: {cannot}"
    placed = sorted(Counter(report["hosts"]).values())
    asked = sorted(int(host.rsplit(":", 1)[1]) for host in args.hosts)
    rates = report["images_per_s"]
    checks = [
        (
            report["world_size"] == args.ranks,
            f"ran with {number_of(report['world_size'], 'rank')} instead of {args.ranks}",
        ),
        (placed == asked or sum(asked) > args.ranks, f"placed its ranks as {placed} instead of {asked}"),
        (len(rates) == args.steps, f"measured {number_of(len(rates), 'step')} instead of {args.steps}"),
        (report["warmup"] == args.warmup and report["batch"] == args.batch, "used another warm-up or batch size"),
        (all(math.isfinite(r) and r > 0 for r in rates), "reported a rate that is not a number"),
        (report["loss_finite"], f"had a loss that is not a number{_since(args, report)}"),
        (  # of a folder of files nobody knows how fast it is learned
            not report["loss_finite"] or args.images == "real" or report["loss_last"] < report["loss_first"],
            "did not learn: the loss did not fall",
        ),
        # what is no number is unlike itself, on every rank
        (report["ranks_agree"] or not report["loss_finite"], "ended with different parameters on different ranks"),
    ]
    faults = [text for good, text in checks if not good]
    return "the training " + ", ".join(faults) if faults else None


def _since(args: Asked, report: dict[str, Any]) -> str:
    step = report.get("loss_lost_step", 0)
    return f" from step {step} of {args.warmup + args.steps} on" if step else ""


def train(
    args: Asked,
    words: Callable[[str], list[str]] | None = None,
    faults: Callable[[dict[str, Any]], str | None] | None = None,
) -> tuple[Ran, dict[str, Any], str | None]:
    """How the job ended, what rank 0 reports, and what it did other than asked, in words.

    `words`: another program with its arguments, by framework; `faults`: what its report says that was not asked for.
    """
    command = command_for(args, words)
    command = in_container(args.enter, command) if args.enter else command
    ran = run_tool(command, env=_environment(args))
    if ran.returncode != 0:
        return ran, {}, None
    try:
        facts = report_of(ran.stdout)
        return ran, facts, faults(facts) if faults else wrong(args, facts)
    except (ValueError, KeyError, TypeError) as fault:
        return ran, {}, f"the training's report cannot be used: {type(fault).__name__}: {fault}"


def probe(args: Asked) -> ProbeDoc:
    """Train for `warmup` + `steps` steps; images/s of the whole job for each measured step."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        job = launched(args)
        looked, why = alike(job)
        if looked is not None:
            return looked, {}, why
        return with_mpi(job, train(job))

    return explained(document("training-short", "horovod", measure, lambda ran: version(ran.stdout)))


def with_mpi(args: Asked, trained: tuple[Ran, dict[str, Any], str | None]) -> tuple[Ran, dict[str, Any], str | None]:
    """What `train` gives, with the version of the container's Open MPI in the report of a job that it launched."""
    _, facts, _ = trained
    if facts and args.launcher == "mpirun":
        words = [*([args.enter] if args.enter else []), "mpirun", "--version"]
        facts["mpi"] = group(r"\(Open MPI\)\s+(\S+)", run_tool(words).stdout)
    return trained


def explained(made: ProbeDoc) -> ProbeDoc:
    """The document of a job that failed begins its error with what the log tells of it."""
    if made["returncode"] != 0:
        why = trouble(made["stdout"] + "\n" + made["stderr"])
        made["error"] = f"{why}; {made['error']}" if why else made["error"]
    return made


def version(stdout: str) -> str:
    """Of Horovod, else of torch, as the report says; "" without one."""
    try:
        report = report_of(stdout)
        return str(report["horovod"] or report["torch"])
    except (ValueError, KeyError):
        return ""
