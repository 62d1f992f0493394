"""`toolkit run`: a program on GPUs elsewhere, by an engine, or on their server itself."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

import click

from toolkit.command_class import command
from toolkit.commands.lease_shared import make_request, omit, request_options, say
from toolkit.commands.lease_static import read_endpoint
from toolkit.exits import epilogue
from toolkit.lease import SHARDS_PER_GPU, LeaseError, ask, engines, images, pool, running, step
from toolkit.lease.fraction import GpuPart, parse_part
from toolkit.lease.host import Host, this_host
from toolkit.lease.on_server import part_refusal
from toolkit.lease.sync import readable
from validation.base.counting import number_of

#: Programs of the toolkit's own, which speak the driver API.
DRIVER_API = ("elastic-ai-copybench", "elastic-ai-train")


def is_enough(engine: str, program: tuple[str, ...], driver_api: bool) -> bool:
    """Whether the engine does what the program needs, as far as that is known."""
    return engines.load(engine).RUNS_RUNTIME or driver_api or Path(program[0]).name in DRIVER_API


def refuse_without_runtime(engine: str, program: tuple[str, ...], driver_api: bool) -> None:
    """LeaseError where the engine has the driver API alone and nobody said that this is enough: many a program would
    find no GPU that computes, and go on without a word on the processor."""
    if not is_enough(engine, program, driver_api):
        raise LeaseError(
            f"the engine here ({engine}) runs kernels by the driver API alone, and {program[0]} may need the CUDA "
            "runtime (as PyTorch does), by which it would find no GPU; "
            "for a program that does not, or only copies, give --driver-api, for another --where server"
        )


def on_server(host: Host, whole: bool, count: int = 1, memory: int | None = None) -> str:
    """Why no program may run on the servers themselves, '' where it may (or the servers decide)."""
    against = "" if whole else part_refusal(host.pool_conf, count, memory)
    if against:
        return against
    return "the pool's policy lets no programs onto its servers (native_jobs)" if pool.closed(host.pool_conf) else ""


def place(
    host: Host,
    where: str,
    whole: bool,
    program: tuple[str, ...],
    driver_api: bool,
    count: int = 1,
    memory: int | None = None,
) -> tuple[Literal["client", "server"], str]:
    """Where the program runs, and for `auto` the line that says so. LeaseError where it can run nowhere."""
    if where == "client":
        refuse_without_runtime(engines.installed(host.engine_dir).engine, program, driver_api)
        return "client", ""
    against = on_server(host, whole, count, memory)
    if where == "server":
        if against:
            raise LeaseError(f"--where server: {against}")
        return "server", ""
    try:
        engine = engines.installed(host.engine_dir).engine
    except LeaseError as fault:
        why = str(fault)
    else:
        if is_enough(engine, program, driver_api):
            return "client", f"{program[0]} runs here, its GPUs by the engine {engine}"
        why = f"the engine here ({engine}) runs kernels by the driver API alone"
    if against:
        hint = "; for a program that needs no more give --driver-api" if "driver API" in why else ""
        raise LeaseError(f"{program[0]} can run neither here nor on the server: {why}; {against}{hint}")
    return "server", f"{program[0]} runs on the server itself: {why}"


def on_servers(host: Host, image: str, servers: str | None, gpu_class: str) -> tuple[str, str | None]:
    """The image as the servers know it, and which of them may have it, for -l. LeaseError where none has."""
    named = tuple(name.strip() for name in (servers or "").split(",") if name.strip())
    wish = ask.LeaseRequest(1, GpuPart(1, 1), named, gpu_class)
    names = [node.name for node in ask.eligible(wish, host.slurm.nodes(), host.slurm.default_partition())]
    found, may = images.find(host, image, names)
    say(f"image {image} is {found or 'looked for when the lease runs: no server could be asked now'}")
    return found or image, servers if may == names else ",".join(may)


def pass_on(words: list[str]) -> NoReturn:
    """Become the engine's own client: the program and its exit code are the client's."""
    if not shutil.which(words[0]):
        raise LeaseError(f"{words[0]} is not installed here, and this machine's engine runs programs by it")
    os.execvp(words[0], words)


def ready() -> None:
    """That there is a pool to ask, and that a lease is given back when this is terminated."""
    if not shutil.which("sbatch"):
        raise LeaseError("Slurm is not installed here: use toolkit run on a machine of the pool, where the program is")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))


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
def run(
    count: int,
    part: str | None,
    memory: int | None,
    apart: bool,
    servers: str | None,
    gpu_class: str,
    seconds: int | None,
    lease: int | None,
    static: str | None,
    signal_name: str | None,
    where: str,
    folder: str | None,
    sync: str | None,
    terminal: bool,
    start: Literal["server", "gpu", "once"] | None,
    label: bool,
    mpi: str | None,
    image: str | None,
    variables: tuple[str, ...],
    driver_api: bool,
    no_kernels: bool,
    program: tuple[str, ...],
) -> None:
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

    \b
    toolkit run -n 2 -p 0.5 --apart -- …                 two halves, each on a GPU of its own
    toolkit run --signal USR1 -- python train.py         when GPUs are taken back: SIGUSR1, then the pool's grace
    """
    chosen = running.parse_signal(signal_name) if signal_name is not None else None
    if lease is not None or static is not None:
        given: dict[str, object] = {
            "-n": count,
            "-p": part,
            "-m": memory,
            "--apart": apart,
            "-l": servers,
            "--class": gpu_class,
            "-t": terminal,
            "--folder": folder,
            "--sync": sync,
            "--where server": where == "server",
            "--start": start,
            "--label": label,
            "--mpi": mpi,
            "--image": image,
        }
        given |= {"--time": seconds} | ({"--static": static} if lease is not None else {})
        omit("--static" if lease is None else "--lease", "runs on what the lease has", given)
        where = "client"
    host = this_host()
    whole = memory is None and (part is None or parse_part(part).whole)
    chosen_place, told = place(host, where, whole, program, driver_api or no_kernels, count, memory)
    there_alone: dict[str, object] = {"-t": terminal, "--folder": folder, "--sync": sync}
    there_alone |= {"--start": start, "--label": label, "--mpi": mpi}
    if chosen_place == "server":
        if sync and folder:
            raise LeaseError("--sync and --folder both say where the program runs; give one of them")
        if mpi and not re.fullmatch(r"[a-z0-9_]+", mpi):
            raise LeaseError(f"--mpi {mpi}: no kind of MPI; srun --mpi=list on a server lists them")
        if image is not None and mpi:
            raise LeaseError(
                "--mpi: a container does not reach Slurm's MPI; --start gpu starts one process for each GPU"
            )
        how = step.How(
            terminal=terminal,
            folder=Path(folder) if folder else None,
            synced=readable(Path(sync)) if sync is not None else None,
            start=start or ("gpu" if mpi else "server"),
            label=label,
            mpi=mpi or "none",
            variables=variables,
        )
        ready()
        if image is not None:
            found, servers = on_servers(host, image, servers, gpu_class)
            how = replace(how, image=found)
        request, parts = make_request(host, count, part, None, servers, gpu_class, seconds, "run", apart, "server")
        if image is not None and how.start == "once" and request.servers_there > 1:
            raise LeaseError(
                f"--start once: these are {number_of(request.servers_there, 'server')}, and a container "
                "reaches no other one; "
                "--start server or gpu starts processes on each"
            )
        if how.start == "once" and request.unequal and request.servers_there > 2:
            raise LeaseError(
                f"--start once: {number_of(request.servers_there, 'server')} would give "
                f"{number_of(count, 'GPU')} in unequal numbers, which a "
                "launcher's own steps do not get (Slurm); ask for a multiple of the servers, or give --start gpu"
            )
        how = replace(how, crowded=how.start == "gpu" and request.crowded)
        if told:
            say(told)
        sys.exit(running.run(host, request, parts, program, say, chosen, partial(step.start_and_wait, how=how)))
    for option, given_it in there_alone.items():
        if given_it:
            raise LeaseError(f"{option} is for programs on the server, and this one runs here")
    elsewhere = engines.run_elsewhere(engines.installed(host.engine_dir).engine)
    if elsewhere is not None:
        given = dict[str, object](
            {"--time": seconds, "--class": gpu_class, "--apart": apart, "--lease": lease, "--static": static}
        )
        given |= {"--signal": signal_name, "--image": image, "-e": variables}
        omit("the engine here", "runs programs by its own client, which gives out GPUs and knows no leases", given)
        running.find_program(program)
        share = Fraction(parse_part(part).shards, SHARDS_PER_GPU) if part else None
        named = tuple(servers.split(",")) if servers else ()
        pass_on(elsewhere(program, engines.Gpus(count, share, memory, named)))
    container = images.here(image, variables) if image is not None else None
    if container is None:
        running.find_program(program)
    if static is not None:
        sys.exit(running.start_and_wait(host, program, [read_endpoint(static)], say, chosen))
    ready()
    if lease is not None:
        sys.exit(running.run_on(host, lease, program, say, chosen))
    request, parts = make_request(host, count, part, memory, servers, gpu_class, seconds, "run", apart)
    running.check_servers(host, request.count if request.spread else len(parts))
    if told:
        say(told)
    if container is not None:
        say(f"image {image} is {container.identity}")
    start_here = partial(running.start_and_wait, container=container)
    sys.exit(running.run(host, request, parts, program, say, chosen, start_here))
