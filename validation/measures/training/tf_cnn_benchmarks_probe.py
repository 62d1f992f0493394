"""tf_cnn_benchmarks as the whitepaper has it, where the operator has put it into the training container.

Over several nodes Horovod's ranks by mpirun, on one node one process with all of its GPUs: the two commands of Dell
whitepaper 2019, section 7.4.1, with synthetic images and the short test's steps. Each process is started by tf_rank.py,
which says where it runs and takes the fabric's devices. The program is not in our image, and its upstream has been
unmaintained since 2020: it is for comparison with the published rates, which it made.

`stdout`: what the program and tf_rank.py printed. `facts`: none but mpi, mpirun's version.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

from validation.measures.training.training_short_probe import (
    ENTER,
    MIN_PATH,
    in_container,
    mpi_transport,
    nccl_environment,
    parts_of,
)
from validation.measures.training.training_short_probe import Asked as Training
from validation.probes import PROGRAM_FOLDER, ProbeDoc
from validation.probes.tool import Ran, document, group, run_tool
from validation.probes.train_trouble import NO_MPIRUN, trouble

RANK = PROGRAM_FOLDER / "tf_rank.py"
NAMES = {
    "resnet50": "resnet50", "vgg16": "vgg16", "vgg19": "vgg19", "inception3": "inception3", "inception4": "inception4",
    "googlenet": "googlenet", "alexnet": "alexnet",
}  # fmt: skip
"""Networks of train_networks.NETWORKS -> what the program calls them."""
EVERY = 10  # steps between two lines of the program: rates of so many steps are what is told apart


@dataclass
class Asked:
    """What is asked of this probe; the defaults are where the training role installs things."""

    program: str  # tf_cnn_benchmarks.py in the container
    ranks: int  # devices of the whole job
    hosts: list[str]  # ADDRESS:SLOTS
    networks: list[str]  # of MPI's traffic, CIDR
    warmup: int  # steps that do not count
    steps: int  # measured steps
    batch: int  # images per device and step
    model: str
    ends: list[str] = field(default_factory=list)  # INTERFACE@ADDRESS: the fabric port of each host
    precision: Literal["fp32", "fp16"] = "fp16"
    device: Literal["cpu", "gpu"] = "gpu"
    time_limit_s: int = 300
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"
    shared_cores: bool = False
    ssh_port: int = 50000
    ssh_config: str = "/etc/elastic-ai/training/ssh_config"
    enter: str = ENTER
    python: str = "/usr/bin/python3"


def flags(args: Asked, processes: int) -> list[str]:
    """The program's, in the whitepaper's order; on processors those without which it does not run there."""
    if processes > 1:
        found = ["--variable_update=horovod", f"--horovod_device={args.device}"]
    else:
        found = ["--variable_update=replicated", f"--local_parameter_device={args.device}", f"--num_gpus={args.ranks}"]
        found += ["--all_reduce_spec=nccl"] if args.device == "gpu" and args.ranks > 1 else []
    found += [f"--model={NAMES[args.model]}", f"--batch_size={args.batch}"]
    found += [
        f"--use_fp16={args.precision == 'fp16'}",
        "--optimizer=momentum",
        "--momentum=0.9",
        "--weight_decay=0.0001",
    ]
    found += ["--data_name=imagenet", "--datasets_num_private_threads=4"] if args.device == "gpu" else []
    found += [f"--num_warmup_batches={args.warmup}", f"--num_batches={args.steps}", f"--display_every={EVERY}"]
    found += ["--summary_verbosity=0", f"--device={args.device}"]
    return found + (["--data_format=NHWC"] if args.device == "cpu" else [])


def command_for(args: Asked) -> list[str]:
    """mpirun over several nodes, and where processors take part; else one process."""
    whole = len(args.hosts) == 1 and (args.device == "gpu" or args.ranks == 1)
    rank = [args.python, "-I", str(RANK), "--time-limit-s", str(args.time_limit_s), "--transport", args.transport]
    rank += ["--ends", ",".join(args.ends)] if args.ends else []
    rank += ["--", args.python, args.program, *flags(args, 1 if whole else args.ranks)]
    slots = [f"{host.rsplit(':', 1)[0]}:1" for host in args.hosts] if whole else args.hosts
    base = Training(ranks=args.ranks, hosts=args.hosts, networks=args.networks, warmup=0, steps=0, batch=0)
    base.transport, base.ends = args.transport, args.ends
    networks = ",".join(args.networks)
    command = ["mpirun", "-np", str(1 if whole else args.ranks), "-H", ",".join(slots), "--bind-to", "none"]
    command += ["--map-by", "slot", "--mca", "plm_rsh_args", f"-p {args.ssh_port} -F {args.ssh_config}"]
    command += [*mpi_transport(base, networks), "--mca", "oob_tcp_if_include", networks]
    if args.shared_cores:
        command += ["--mca", "mpi_yield_when_idle", "1"]
    command += ["--timeout", str(args.time_limit_s), *nccl_environment(base), "-x", "NCCL_IB_CUDA_SUPPORT=1"]
    return [*command, *rank]


def probe(args: Asked) -> ProbeDoc:
    """Train for `warmup` + `steps` steps."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        if args.model not in NAMES:
            return Ran([], 0, "", ""), {}, f"tf_cnn_benchmarks has no network {args.model}"
        environment = {"PATH": os.environ.get("PATH", MIN_PATH), "HOME": os.environ.get("HOME", "/")}
        there = run_tool([args.enter, "test", "-r", args.program]) if args.enter else None
        if there is not None and there.returncode:
            words = f"{args.program} is not in the training container; horovod_volumes takes a folder of the node there"
            return Ran(there.command, 0, there.stdout, there.stderr), {}, words
        parts = parts_of(args.enter) if args.enter else {}
        if parts and not parts["mpirun"]:
            return Ran([], 0, "", ""), {}, f"{NO_MPIRUN}, which launches tf_cnn_benchmarks"
        command = command_for(args)
        ran = run_tool(in_container(args.enter, command) if args.enter else command, env=environment)
        enter = [args.enter] if args.enter else []
        return ran, {"mpi": group(r"\(Open MPI\)\s+(\S+)", run_tool([*enter, "mpirun", "--version"]).stdout)}, None

    made = document("tf-cnn-benchmarks", "tf_cnn_benchmarks", measure, lambda ran: _version(ran.stdout))
    if made["returncode"] != 0:
        why = trouble(made["stdout"] + "\n" + made["stderr"])
        made["error"] = f"{why}; {made['error']}" if why else made["error"]
    return made


def _version(stdout: str) -> str:
    return group(r"^TensorFlow:\s+(\S+)", stdout)
