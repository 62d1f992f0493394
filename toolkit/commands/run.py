"""`toolkit run`: a program on GPUs elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from fractions import Fraction
from typing import NoReturn

import click

from toolkit.commands.lease_shared import make_wish, say, wish_options
from toolkit.commands.lease_static import endpoint_text
from toolkit.exits import epilogue
from toolkit.lease import ENGINE_DIR, SHARDS_PER_GPU, LeaseError, endpoint, running
from toolkit.lease.engines import installed
from toolkit.lease.fraction import parse_part


def pass_on(
    count: int, part: str | None, memory: int | None, servers: str | None, program: tuple[str, ...]
) -> NoReturn:
    """Bitfusion's appliances give out their GPUs themselves: its own client does what was asked for."""
    from toolkit.lease.engines import bitfusion

    share = Fraction(parse_part(part).shards, SHARDS_PER_GPU) if part else None
    words = bitfusion.run_command(program, count, share, memory, (servers or "").split(",") if servers else ())
    if not shutil.which(words[0]):
        raise LeaseError("Bitfusion's client is not installed here")
    os.execvp(words[0], words)  # the program and its exit code are the client's


@click.command(context_settings={"allow_interspersed_args": False}, epilog=epilogue("run"))
@wish_options
@click.option("--lease", type=int, help="Run on this lease, which stays; see toolkit lease request.")
@click.option("--static", help="Run on this lease of an administrator's, where there is no Slurm.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    count: int,
    part: str | None,
    memory: int | None,
    servers: str | None,
    gpu_class: str,
    hours: float | None,
    lease: int | None,
    static: str | None,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM here with GPUs of the pool: ask, wait, run, give back.

    \b
    toolkit run -n 1 -- python train.py          one whole GPU
    toolkit run -n 2 -p 0.5 -- python train.py   two devices, half a GPU each
    toolkit run -m 4096 -- python serve.py       as large a part as holds 4096 MiB
    toolkit run --lease 42 -- python train.py    on a lease that is there
    """
    running.find_program(program)
    engine = installed(ENGINE_DIR)["engine"]
    if engine == "bitfusion":
        pass_on(count, part, memory, servers, program)
    if static is not None:
        sys.exit(running.start_and_wait(program, [endpoint.parse(endpoint_text(static))], say))
    if not shutil.which("sbatch"):
        raise LeaseError("Slurm is not installed here: run belongs on a machine of the pool, where the program is")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))
    if lease is not None:
        sys.exit(running.run_on(lease, program, say))
    wish, parts = make_wish(count, part, memory, servers, gpu_class, hours, "run")
    running.check_servers(len(parts))
    sys.exit(running.run(wish, parts, program, say))
