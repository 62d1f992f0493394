"""`toolkit gpus`: the pool, who has what of it, and what is free."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from toolkit.commands.lease_shared import head_options, on_head
from toolkit.lease import pool
from toolkit.lease.fraction import share_text
from toolkit.lease.host import this_host
from toolkit.lease.text import EMULATED, clock, several, table

TITLES = ("SERVER", "GPU", "CLASS", "MODEL", "MEMORY", "FREE", "IN USE")


def _row(gpu: pool.PoolGpu) -> list[str]:
    memory = f"{gpu.memory_mib / 1024:.4g} GiB" if gpu.memory_mib >= 4096 else f"{gpu.memory_mib} MiB"
    uses = "; ".join(pool.used_text(use, gpu.of, clock(use.until)) for use in gpu.uses)
    return [
        gpu.node,
        str(gpu.index),
        gpu.gpu_class,
        gpu.model,
        memory if gpu.memory_mib else "?",
        gpu.state or share_text(gpu.free, gpu.of),
        uses,
    ]


@click.command()
@head_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def gpus(inventory: Path | None, as_json: bool) -> None:
    """The pool's GPUs: server, model, what is free, who has the rest and until when.

    \b
    toolkit gpus                      on any machine of the pool
    toolkit gpus -i inventories/SITE  from elsewhere, by way of the head
    toolkit gpus --json | jq '.gpus[] | select(.free > 0)'
    """
    if on_head(inventory, ["gpus", *(["--json"] if as_json else [])]):
        return
    host = this_host()
    found = pool.gpus_of(host.slurm.nodes(), host.slurm.jobs(), pool.read_servers(host.pool_conf))
    if as_json:
        document = [asdict(gpu) | {"free_shards": gpu.free, "free": gpu.free / gpu.of} for gpu in found]
        click.echo(json.dumps({"gpus": document}, indent=2))
        return
    if not found:
        click.echo("The pool has no GPUs.")
        return
    click.echo(table(TITLES, [_row(gpu) for gpu in found]))
    label = f" {EMULATED}" if any(gpu.emulated for gpu in found) else ""
    click.echo(f"{several(len(found), 'GPU')}, {pool.free_text(found)} free.{label}")
