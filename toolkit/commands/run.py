"""`toolkit run`: a program on GPUs elsewhere, by an engine, or on their server itself."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import click

from toolkit.command_class import command
from toolkit.commands.lease_shared import request_options, say
from toolkit.commands.lease_static import read_endpoint
from toolkit.exits import epilogue
from toolkit.lease import LeaseError, ask, images, running, step
from toolkit.lease.host import Host, this_host
from toolkit.lease.placement import command_by_engine, place, plan_there, refuse_missing, refuse_on_lease
from toolkit.lease.run_request import RunRequest


def become(words: Sequence[str]) -> NoReturn:
    """Become the engine's own client: the program and its exit code are the client's."""
    if not shutil.which(words[0]):
        raise LeaseError(f"{words[0]} is not installed here, and this machine's engine runs programs by it")
    os.execvp(words[0], list(words))


def ready() -> None:
    """That there is a pool to ask, and that a lease is given back when this is terminated."""
    if not shutil.which("sbatch"):
        raise LeaseError("Slurm is not installed here: use toolkit run on a machine of the pool, where the program is")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))


def run_there(host: Host, request: RunRequest, told: str) -> int:
    """On the GPU server itself: the program's exit code. told: why there."""
    how = request.how_there()
    ready()
    there = plan_there(host, request, how, say)
    if told:
        say(told)
    start = partial(step.start_and_wait, how=there.how)
    return running.run(host, there.submission, request.program, say, request.signal, start)


def run_here(host: Host, request: RunRequest, told: str) -> int:
    """On this machine, its GPUs by the engine: the program's exit code. told: why here."""
    container = images.here(request.image, request.variables) if request.image is not None else None
    if container is None:
        running.find_program(request.program, host.engine_dir)
    if request.static is not None:
        endpoint = read_endpoint(request.static)
        refuse_on_lease(host.engine_dir, request, endpoint.engine)
        return running.start_and_wait(host, request.program, [endpoint], say, request.signal)
    ready()
    if request.lease is not None:
        check = partial(refuse_on_lease, host.engine_dir, request)
        return running.run_on(host, request.lease, request.program, say, request.signal, check)
    submission = ask.against_pool(host, request.wish, "run", say)
    running.check_servers(
        host, submission.servers if submission.request.spread else submission.jobs, request.wish.engine
    )
    if told:
        say(told)
    if container is not None:
        say(f"image {request.image} is {container.identity}")
    start = partial(running.start_and_wait, container=container)
    return running.run(host, submission, request.program, say, request.signal, start)


FRONT = (
    "--gpus", "--part", "--memory", "--servers", "--time", "--lease", "--where", "--sync", "--image",
)  # fmt: skip
"""What --help shows; --help-all shows all options."""


@command(context_settings={"allow_interspersed_args": False}, epilog=epilogue("run"), front=FRONT)
@request_options
@click.option("--lease", type=click.IntRange(min=1), help="Run on this lease, which stays; see toolkit lease request.")
@click.option("--static", help="Run on this lease of an administrator's, where there is no Slurm.")
@click.option(
    "--signal", "signal_name", help="Send the program this signal before its lease ends early.  [default: TERM]"
)
@click.option(
    "--where",
    type=click.Choice(["auto", "client", "server"]),
    default="auto",
    show_default=True,
    help="Run PROGRAM here (client), by an engine that brings the GPUs, or on the GPU server itself (server).",
)
@click.option("--folder", help="Run PROGRAM in this folder, on the server.  [default: this one, which both have]")
@click.option("--sync", help="Copy this folder to the server, run PROGRAM in it, and copy it back.")
@click.option("-t", "--terminal", is_flag=True, help="Give PROGRAM a terminal, on the server.")
@click.option(
    "--start",
    type=click.Choice(["server", "gpu", "once"]),
    help="Start PROGRAM on each server, for each GPU, or once, where it starts the others.  [default: server]",
)
@click.option("--label", is_flag=True, help="Begin each line with the process that prints it, on the server.")
@click.option(
    "--mpi", help="Start PROGRAM by Slurm as ranks of this kind of MPI (pmix, pmi2), on the server; means --start gpu."
)
@click.option("--image", help="Run PROGRAM in a container of this image, with the leased GPUs.")
@click.option(
    "-e", "--env", "variables", multiple=True, help="Take this variable of yours into the container. Repeatable."
)
@click.option(
    "--driver-api",
    is_flag=True,
    help="State that PROGRAM needs the CUDA driver API alone (as Numba does), not the runtime (as PyTorch does).",
)
@click.option("--no-kernels", is_flag=True, help="State that PROGRAM launches no kernels; it counts as --driver-api.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Run a program with GPUs of the pool.

    Asks for the GPUs, waits for them, runs PROGRAM here or on their server, and gives them back.

    \b
    toolkit run -- python train.py                       one whole GPU
    toolkit run --gpus 2 --part 0.5 -- python train.py   two devices, half a GPU each
    toolkit run --memory 4096 -- python serve.py         as large a part as holds 4096 MiB
    toolkit run --time 90m -- python train.py            at most 90 minutes
    toolkit run --where server -- python x.py            on the GPU server, in this folder, which both have
    toolkit run --sync . -- python x.py                  there, in a copy of this folder, which comes back
    toolkit run --gpus 16 -- torchrun train.py           on as many servers as it takes, once on each
    toolkit run --lease 42 -- python train.py            on a lease that is there

    \f
    What PROGRAM imports decides by which of the site's engines it gets its GPUs, or that it runs on the server; one
    line reports it, and --engine or --where decide by hand.

    \b
    toolkit run -n 2 -p 0.5 --apart -- …                 two halves, each on a GPU of its own
    toolkit run --signal USR1 -- python train.py         when GPUs are taken back: SIGUSR1, then the pool's grace
    """
    request, host = RunRequest.checked(**options), this_host()
    refuse_missing(request)
    placement = place(host, request)
    if placement.where == "server":
        sys.exit(run_there(host, request, placement.told))
    request.check_here()
    request = replace(request, wish=replace(request.wish, engine=placement.engine))
    by_engine = command_by_engine(host, request)
    if by_engine is not None:
        running.find_program(request.program)
        become(by_engine)
    sys.exit(run_here(host, request, placement.told))
