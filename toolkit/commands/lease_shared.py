"""What the commands around leases share: options, errors, and the way to the head from a machine outside the pool."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from toolkit.lease import SHARDS_PER_GPU, LeaseError, ask, pool
from toolkit.lease.fraction import GpuPart, parse_part, part_for_memory
from toolkit.lease.host import Host
from toolkit.lease.on_server import servers_for
from validation import noise

F = TypeVar("F", bound=Callable[..., Any])
_LINE_BYTES = 1 << 16
head_options = click.option(
    "-i", "--inventory", type=click.Path(path_type=Path), help="Outside the pool: ask this inventory's head, by ssh."
)


def say(words: str) -> None:
    """To the person at the terminal; the program has stdout for itself."""
    click.echo(words, err=True)


def on_head(inventory: Path | None, words: Sequence[str]) -> bool:
    """Outside the pool: run the same command on the head, and say True. With Slurm here and no -i: False."""
    if inventory is None and shutil.which("scontrol"):
        return False
    try:
        from toolkit.inventory import read_inventory
        from toolkit.lab.standing import is_up
        from toolkit.lab_inventory import lab_inventory
    except ImportError:
        if inventory is not None:
            raise LeaseError("-i is for the machine that provisions; omit it here") from None
        raise LeaseError("Slurm is not installed here; request leases on a machine of the pool") from None
    if inventory is None and not is_up():
        raise LeaseError(
            "Slurm is not installed here; name the pool by -i inventories/SITE, or ask on one of its machines"
        )
    inventory = inventory or lab_inventory()
    topology = read_inventory(inventory)
    head = next((node for node in topology.nodes if "heads" in node.groups), None)
    if head is None:
        raise LeaseError(f"{inventory}: no host in group heads; the head knows the pool")
    target = head.ssh
    key = ["-i", target.key_file] if target.key_file else []
    where = [
        "ssh",
        "-o",
        "BatchMode=yes",
        *key,
        "-p",
        str(target.port),
        *target.extra_args,
        f"{target.user}@{target.host}",
    ]
    code = pass_on(where, noise.Marked(["toolkit", *words]))
    if code == 255:
        raise LeaseError(f"{head.name} ({target.host}) does not answer by ssh")
    if code == 127:
        raise LeaseError(f"{head.name} has no toolkit command yet: ansible-playbook playbooks/remoting.yml")
    if code:
        sys.exit(code)
    return True


def pass_on(where: Sequence[str], marked: noise.Marked) -> int:
    """Run a command on the head and print what it prints, as it comes, without what login files print around it."""
    with subprocess.Popen([*where, marked.line], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ours, end = False, b""  # `end`: of the line before; the last one's is that of the mark
        while line := process.stdout.readline(_LINE_BYTES):
            if marked.is_mark(line):
                ours, end = not ours, b""
            elif ours:
                bare = line.rstrip(b"\n")
                sys.stdout.buffer.write(end + bare)
                sys.stdout.buffer.flush()
                end = line[len(bare) :]
        return process.wait()


def request_options(command: F) -> F:
    """-n -p -m --apart -l --class --hours, as users of FlexDirect know them."""
    for option in reversed(
        (
            click.option("-n", "count", type=int, default=1, show_default=True, help="How many GPUs the program sees."),
            click.option("-p", "part", help="Part of each: 0.5, 1/7, 5/20. Without it: whole GPUs."),
            click.option("-m", "memory", type=int, help="Instead of -p: memory of each, in MiB."),
            click.option("--apart", is_flag=True, help="Parts (on the server: GPUs) on different servers."),
            click.option("-l", "servers", help="Only these servers, separated by commas."),
            click.option("--class", "gpu_class", default="", help="Only GPUs of this class."),
            click.option("--hours", type=float, help="For how long (1.5); without it as long as the pool allows."),
        )
    ):
        command = option(command)
    return command


def _seconds(hours: float | None) -> int | None:
    if hours is None:
        return None
    if not 0 < hours <= 24 * 366:
        raise LeaseError(f"--hours {hours:g}: give a time above 0 and up to a year")
    return max(round(hours * 3600), 1)


def omit(chosen: str, why: str, given: Mapping[str, object]) -> None:
    """LeaseError where options are there that have no meaning beside `chosen`; `given` is the value of each option, and
    none, "", False and one GPU are what nobody asked for."""
    words = [option for option, value in given.items() if value and (option, value) != ("-n", 1)]
    if words:
        raise LeaseError(f"{chosen} {why}; omit {', '.join(words)}")


def make_request(
    host: Host,
    count: int,
    part: str | None,
    memory: int | None,
    servers: str | None,
    gpu_class: str,
    hours: float | None,
    mode: str,
    apart: bool = False,
    where: Literal["client", "server"] = "client",
) -> tuple[ask.LeaseRequest, list[list[str]]]:
    """The request, and the jobs that it becomes, against the pool as it is; all refusals happen here."""
    if part is not None and memory is not None:
        raise LeaseError("-p and -m both set the size of a part; give one of them")
    if part is not None:
        parse_part(part)  # what is no part is refused before Slurm is asked
    seconds = _seconds(hours)
    named = tuple(name.strip() for name in (servers or "").split(",") if name.strip())
    if not re.fullmatch(r"[\w.-]*", gpu_class):
        raise LeaseError(f"--class {gpu_class!r}: not the name of a class; toolkit gpus lists them")
    if servers is not None and not named:
        raise LeaseError("-l names no server; omit it for any")
    everyone, jobs, known = host.slurm.nodes(), host.slurm.jobs(), pool.read_servers(host.pool_conf)
    request = ask.LeaseRequest(count, GpuPart(1, 1), named, gpu_class, seconds, mode)
    nodes = ask.eligible(request, everyone, host.slurm.default_partition())
    of = next((pool.shards_per_gpu(node) for node in nodes), SHARDS_PER_GPU)
    gpus = [g for g in pool.gpus_of(everyone, jobs, known) if g.node in {n.name for n in nodes}]
    if memory is not None:
        sizes = {gpu.memory_mib - gpu.reserved_mib for gpu in gpus if gpu.memory_mib}
        if not sizes:
            raise LeaseError("-m: the GPUs' memory size is not known here; run site.yml, or use -p")
        share = part_for_memory(memory, min(sizes), of, max(gpu.context_bytes for gpu in gpus))
    else:
        share = parse_part(part, of) if part is not None else GpuPart(max(of, 1), max(of, 1))
    request = ask.LeaseRequest(count, share, named, gpu_class, seconds, mode, apart=apart, where=where)
    ask.refuse_impossible(request, nodes)
    if where == "server":
        there, unequal = servers_for(count, apart, [node.gpus for node in nodes])
        request = replace(request, servers_there=there, unequal=unequal)
        request = replace(request, cpus=ask.cpus_for(request, nodes), cpus_per_gpu=ask.cpus_per_gpu(request, nodes))
    request = replace(request, host_mib=ask.host_mib(host, request, nodes, known))
    if share.note:
        say(share.note)
    return request, ask.options(request, nodes, everyone, gpus, ask.clients_for(host, nodes, known))
