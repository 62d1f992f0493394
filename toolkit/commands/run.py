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
from toolkit.commands.ssh import port_option
from toolkit.exits import epilogue
from toolkit.lease import LeaseError, kept_note
from toolkit.lease.before import sees
from toolkit.lease.before.choice import Choice
from toolkit.lease.before.words import program_words
from toolkit.lease.client import ask, images, running, step
from toolkit.lease.client.placement import command_by_engine, place, plan_there, refuse_missing, refuse_on_lease
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.kept import starting
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.shell import connection, forward


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


def go_on_alone(host: Host, request: RunRequest) -> int:
    """The same command in a unit of its own (package kept): as soon as it has a lease, how to follow it."""

    def say_raw(data: bytes) -> None:
        click.echo(data.decode("utf-8", "backslashreplace"), err=True, nl=False)

    wish = starting.Wish(request.program, request.then or "", request.mail or "", request.lease)
    kept = starting.keep(wish, sys.argv[1:], say_raw)
    if isinstance(kept, int):
        return kept
    click.echo(f"{starting.started_words(host, kept)}\n{starting.next_commands(kept)}")
    return 0


def run_there(host: Host, request: RunRequest, told: str, choice: Choice | None = None) -> int:
    """On the GPU server itself: the program's exit code. told: why there. choice: how, as far as that was decided."""
    how = request.how_there()
    ready()
    if told:
        say(told)
    there = plan_there(host, request, how, say, choice)
    start = partial(step.start_and_wait, how=there.how)

    def start_with_ports(
        host: Host,
        argv: Sequence[str],
        endpoints: Sequence[LeaseEndpoint],
        say: running.Say,
        chosen: signal.Signals | None,
    ) -> int:
        with forward.Forward(endpoints[0].lease, request.ports, say):
            return start(host, argv, endpoints, say, chosen)

    started = start_with_ports if request.ports else start
    seen = partial(sees.words_there, there.framework)
    return running.run(host, there.submission, there.program, say, request.signal, started, seen)


def run_here(host: Host, request: RunRequest, told: str, framework: str) -> int:
    """On this machine, its GPUs by the engine: the program's exit code. told: why here. framework: what sees them."""
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
    seen = partial(sees.words_here, framework, environment=os.environ)
    return running.run(host, submission, request.program, say, request.signal, start, seen)


FRONT = (
    "--gpus", "--part", "--memory", "--servers", "--time", "--lease", "--where", "--sync", "--image", "--detach",
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
@click.option("--folder", help="Run PROGRAM in this folder, on the server.  [default: this one, or a copy of it]")
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
@port_option
@click.option("-d", "--detach", is_flag=True, help="Return at once; see toolkit logs.")
@click.option("--then", metavar="COMMAND", help="Run this shell command when PROGRAM has ended, with --detach.")
@click.option("--mail", metavar="ADDRESS", help="Send a mail there when PROGRAM has ended, with --detach.")
@click.option(
    "--driver-api",
    is_flag=True,
    help="State that PROGRAM needs the CUDA driver API alone (as Numba does), not the runtime (as PyTorch does).",
)
@click.option("--no-kernels", is_flag=True, help="State that PROGRAM launches no kernels; it counts as --driver-api.")
@click.option("--cpu-ok", is_flag=True, help="Run PROGRAM also where it would see no GPU, on the server's processors.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Run a program with GPUs of the pool.

    Asks for the GPUs, waits for them, runs PROGRAM here or on their server, and gives them back.

    \b
    toolkit run train.py                                 one whole GPU; also -- python train.py
    toolkit run --gpus 2 --part 0.5 -- python train.py   two devices, half a GPU each
    toolkit run --time 90m -- python train.py            at most 90 minutes
    toolkit run --where server -- python x.py            on the GPU server, in this folder or a copy of it
    toolkit run --sync . -- python x.py                  there, in a copy of this folder, which comes back
    toolkit run --where server --gpus 16 -- torchrun train.py   on as many servers as it takes, once on each
    toolkit run --detach -- python train.py              outlives your login
    toolkit run --lease 42 -- python train.py            on a lease that is there

    \f
    What PROGRAM imports decides by which of the site's engines it gets its GPUs, or that it runs on the server; one
    line reports it, and --engine or --where decide by hand.

    \b
    toolkit run --memory 4096 -- python serve.py         as large a part as holds 4096 MiB
    toolkit run -n 2 -p 0.5 --apart -- …                 two halves, each on a GPU of its own
    toolkit run --signal USR1 -- python train.py         when GPUs are taken back: SIGUSR1, then the pool's grace
    """
    request, host = RunRequest.checked(**options), this_host()
    connection.refuse_taken(request.ports)
    if request.detach and not kept_note.kept():
        sys.exit(go_on_alone(host, request))
    elsewhere = bool(request.folder or request.sync or request.image)
    request = replace(request, program=program_words(request.program, elsewhere))
    refuse_missing(request)
    placement = place(host, request)
    if placement.where == "server":
        sys.exit(run_there(host, request, placement.told, placement.choice))
    request.check_here()
    request = replace(request, wish=replace(request.wish, engine=placement.engine))
    by_engine = command_by_engine(host, request)
    if by_engine is not None:
        running.find_program(request.program)
        become(by_engine)
    sys.exit(run_here(host, request, placement.told, placement.framework))
