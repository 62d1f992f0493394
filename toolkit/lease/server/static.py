"""Leases without Slurm, on one server: an administrator gives out an instance, and what Slurm would do is missing.

No queue (what is not free is refused), no policies, no accounting, no preemption, no way for users to ask themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.display import several
from toolkit.lease.endpoint import parse
from toolkit.lease.fraction import parse_part, share_text
from toolkit.lease.instance_record import ENDPOINT, Instance, is_static
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.jobs.lease_job import LeaseJob
from toolkit.lease.jobs.slurm_text import Held
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.pool import where_text
from toolkit.lease.server import handover, instance
from toolkit.lease.server.journal import tell_all
from toolkit.lease.server.lease_locks import turn
from toolkit.lease.server_conf import ServerConf, read_server_conf
from toolkit.lease.static_forms import (
    StaticGrant,
    StaticLease,
    StaticWish,
    leases_text,
    parse_wish,
    refusal_text,
)

SLURM_CONF = Path("/etc/slurm/slurm.conf")


def choose(host: Host, count: int, shards: int, conf: ServerConf, given: Iterable[Instance]) -> list[Held]:
    """GPUs with so many shards free, the fullest first, so that whole ones stay whole; each of another GPU, because one
    instance shows a GPU to its program once."""
    of = conf.shards_per_gpu or 1
    free = {gpu.uuid: [of, gpu.index] for gpu in host.gpus.gpus()}
    for device in (device for one in given for device in one.devices if device.gpu in free):
        free[device.gpu][0] -= device.shards
    held: list[Held] = []
    for _ in range(count):
        fits = sorted(
            entry for entry in free.values() if entry[0] >= shards and entry[1] not in {h.index for h in held}
        )
        if not fits:
            left = ", ".join(f"{entry[1]}: {share_text(max(entry[0], 0), of)}" for entry in free.values())
            raise LeaseError(f"{conf.node} does not have that much free on {several(count, 'GPU')} (free of {left})")
        held.append(Held(conf.node, fits[0][1], 0 if shards == of else shards))
    return held


def _clear(host: Host, conf: ServerConf, gpus: set[int]) -> None:
    """Nobody has these GPUs but who may; LeaseError where somebody cannot be made to leave them."""
    told, left = handover.clear(host, conf, gpus)
    tell_all(f"GPUs {', '.join(map(str, sorted(gpus)))}", told)
    if left:
        raise LeaseError(f"{conf.node}: its GPUs are not free: {'; '.join(left)}")


def _end(host: Host, conf: ServerConf, name: str) -> None:
    """End an instance; LeaseError where something of it stays, or somebody keeps its GPUs."""
    one = instance.known(host).get(name)
    with turn(host, name):
        left = instance.end_instance(host, name)
    if left:
        raise LeaseError(f"{name}: not everything was removed: {'; '.join(left)}")
    _clear(host, conf, one.indices if one is not None else set())


def start(host: Host, wish: StaticWish, conf: ServerConf) -> StaticGrant:
    """Start an instance. LeaseError when it does not start, and then nothing stays."""
    if SLURM_CONF.exists():
        raise LeaseError(f"{conf.node} is managed by Slurm, which would grant the same GPUs; omit --static")
    instances = instance.known(host)
    number = max([int(name[1:]) for name in filter(is_static, instances.jobs) if name[1:].isdigit()], default=0) + 1
    part = parse_part(wish.part, conf.shards_per_gpu)
    what = f"{wish.count} x {part.text} GPU"
    comment = JobComment(wish.clients, wish.host, "hold", what, wish.seconds, engine=wish.engine)
    held = choose(host, wish.count, part.shards, conf, instances.certain().values())
    job = LeaseJob(f"s{number}", number, 0, comment.text(), tuple(held))
    _clear(host, conf, {one.index for one in held})
    try:
        with turn(host, job.job):
            instance.begin(host, job, conf)
    except LeaseError:
        instance.end_instance(host, job.job)
        raise
    return StaticGrant(parse((host.run_dir / job.job / ENDPOINT).read_text()), what, part.note)


def listed(given: Iterable[Instance], node: str) -> list[StaticLease]:
    """Static leases on this server."""
    found = []
    for one in sorted(given, key=lambda one: one.job):
        if is_static(one.job):
            part = share_text(one.devices[0].shards, one.devices[0].of)
            where = where_text((node, device.index) for device in one.devices)
            found.append(StaticLease(one.job, f"{len(one.devices)} x {part} GPU", where, one.host, one.deadline))
    return found


def main() -> int:
    """`static start < REQUEST`, `static list`, `static end NAME`: JSON on stdout; by ssh, as root."""
    try:
        host = this_host()
        conf = read_server_conf(host.server_conf)
        if sys.argv[1:2] == ["start"]:
            print(start(host, parse_wish(sys.stdin.read()), conf).text())
        elif sys.argv[1:2] == ["list"]:
            print(leases_text(listed(instance.known(host).certain().values(), conf.node)))
        else:
            name = sys.argv[2]
            if name not in instance.known(host).jobs or not is_static(name):
                raise LeaseError(f"{conf.node} has no static lease {name}")
            _end(host, conf, name)
            print("{}")
    except LeaseError as fault:
        print(refusal_text(str(fault)))
    return 0
