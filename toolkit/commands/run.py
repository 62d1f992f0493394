"""`toolkit run`: a program on GPUs elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from fractions import Fraction
from pathlib import Path
from typing import NoReturn

import click

from toolkit.commands.lease_shared import make_request, omit, request_options, say
from toolkit.commands.lease_static import endpoint_text
from toolkit.exits import epilogue
from toolkit.lease import SHARDS_PER_GPU, LeaseError, endpoint, engines, running
from toolkit.lease.fraction import parse_part
from toolkit.lease.host import this_host

#: Programs of the toolkit's own that are known to launch no kernels.
COPY_ALONE = ("elastic-ai-copybench",)


def refuse_without_kernels(engine: str, program: tuple[str, ...], no_kernels: bool) -> None:
    """LeaseError where the engine runs no kernels and nobody said that the program needs none: many a program would
    find no GPU that computes, and go on without a word on the processor."""
    if engines.load(engine).RUNS_KERNELS or no_kernels or Path(program[0]).name in COPY_ALONE:
        return
    raise LeaseError(
        f"the engine here ({engine}) runs no kernels, so {program[0]} could compute nothing on its GPUs; "
        "for a program that only copies give --no-kernels"
    )


def pass_on(words: list[str]) -> NoReturn:
    """Become the engine's own client: the program and its exit code are the client's."""
    if not shutil.which(words[0]):
        raise LeaseError(f"{words[0]} is not installed here, and this machine's engine runs programs by it")
    os.execvp(words[0], words)


@click.command(context_settings={"allow_interspersed_args": False}, epilog=epilogue("run"))
@request_options
@click.option("--lease", type=click.IntRange(min=1), help="Run on this lease, which stays; see toolkit lease request.")
@click.option("--static", help="Run on this lease of an administrator's, where there is no Slurm.")
@click.option("--signal", "signal_name", help="What the program is sent before its lease ends early.  [default: TERM]")
@click.option("--no-kernels", is_flag=True, help="PROGRAM launches no kernels; an engine that only copies is enough.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    count: int,
    part: str | None,
    memory: int | None,
    apart: bool,
    servers: str | None,
    gpu_class: str,
    hours: float | None,
    lease: int | None,
    static: str | None,
    signal_name: str | None,
    no_kernels: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM here with GPUs of the pool: ask, wait, run, give back.

    \b
    toolkit run -n 1 -- python train.py          one whole GPU
    toolkit run -n 2 -p 0.5 -- python train.py   two devices, half a GPU each
    toolkit run -n 2 -p 0.5 --apart -- …         each on a GPU of its own
    toolkit run -m 4096 -- python serve.py       as large a part as holds 4096 MiB
    toolkit run --lease 42 -- python train.py    on a lease that is there
    toolkit run --signal USR1 -- python train.py when GPUs are taken back: SIGUSR1, then the pool's grace
    """
    running.find_program(program)
    chosen = running.parse_signal(signal_name) if signal_name is not None else None
    if lease is not None or static is not None:
        given: dict[str, object] = {
            "-n": count,
            "-p": part,
            "-m": memory,
            "--apart": apart,
            "-l": servers,
            "--class": gpu_class,
        }
        given |= {"--hours": hours} | ({"--static": static} if lease is not None else {})
        omit("--static" if lease is None else "--lease", "runs on what the lease has", given)
    host = this_host()
    engine = engines.installed(host.engine_dir)["engine"]
    refuse_without_kernels(engine, program, no_kernels)
    elsewhere = engines.run_elsewhere(engine)
    if elsewhere is not None and chosen is not None:
        raise LeaseError("--signal: this machine's engine runs programs by its own client, which gives no notice")
    if elsewhere is not None:
        share = Fraction(parse_part(part).shards, SHARDS_PER_GPU) if part else None
        where = tuple(servers.split(",")) if servers else ()
        pass_on(elsewhere(program, engines.Gpus(count, share, memory, where)))
    if static is not None:
        sys.exit(running.start_and_wait(host, program, [endpoint.parse(endpoint_text(static))], say, chosen))
    if not shutil.which("sbatch"):
        raise LeaseError("Slurm is not installed here: use toolkit run on a machine of the pool, where the program is")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))
    if lease is not None:
        sys.exit(running.run_on(host, lease, program, say, chosen))
    request, parts = make_request(host, count, part, memory, servers, gpu_class, hours, "run", apart)
    running.check_servers(host, request.count if request.spread else len(parts))
    sys.exit(running.run(host, request, parts, program, say, chosen))
