"""More computing than a lease's part, up to its ceiling, while nobody else has the rest of its GPUs (`--up-to`).

The part stays guaranteed and memory stays the part's. What is more is given and taken back by the quota of the unit's
processors, without a word to the program: on servers where processors stand in for GPUs. A real GPU without MPS divides
its time by itself; MPS and MIG fix a share at the start, and requests with a ceiling are refused there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.fraction import share_text
from toolkit.lease.instance_record import Instance, read_instances, write_file
from toolkit.lease.machine import quota
from toolkit.lease.machine.host import Host
from toolkit.lease.server.journal import tell
from toolkit.lease.server.lease_locks import locked
from toolkit.lease.server.native_records import read_records

#: In a lease's folder: the share of processors that its unit was given last.
FILE = "share"


def _free(instances: Iterable[Instance], taken: Collection[int]) -> dict[int, Fraction]:
    """Of each GPU by index the part that nobody has. taken: those that native jobs have whole."""
    free: dict[int, Fraction] = {}
    for device in (device for one in instances for device in one.devices):
        free[device.index] = free.get(device.index, Fraction(1)) - Fraction(device.shards, device.of)
    return {index: Fraction(0) if index in taken else max(part, Fraction(0)) for index, part in free.items()}


def _more(up_to: int, device: LeasedGpu) -> Fraction:
    """What a device would take beyond its part."""
    return max(Fraction(min(up_to, device.of) - device.shards, device.of), Fraction(0))


def shares(instances: Mapping[str, Instance], taken: Collection[int] = ()) -> dict[str, Fraction]:
    """Processors for each lease with a ceiling whose unit is held to a share, by job. What is free of a GPU is divided
    among them in proportion to what each may still take."""
    free = _free(instances.values(), taken)
    wanted: dict[int, Fraction] = {}
    for one in instances.values():
        for device in one.devices if one.up_to else ():
            wanted[device.index] = wanted.get(device.index, Fraction(0)) + _more(one.up_to, device)
    found = {}
    for job, one in instances.items():
        share = quota.share_of(one.engine, one.devices) if one.up_to and not one.native else None
        if share is None:
            continue
        for device in one.devices:
            more, all_of_it = _more(one.up_to, device), wanted[device.index]
            share += min(more, free[device.index] * more / all_of_it) if all_of_it else 0
        found[job] = share
    return found


def rebalance(host: Host) -> None:
    """Give leases with a ceiling what is free now, and take back what is not: before a lease starts, after it has
    started, after one has ended, and with each sweep. A failure is reported in the journal and ends no lease."""
    try:
        if any(one.up_to for one in read_instances(host.run_dir).by_job.values()):
            with locked(host):
                _rebalance(host)
    except (OSError, LeaseError) as fault:
        tell(f"shares of processors could not be changed: {fault}")


def _rebalance(host: Host) -> None:
    instances = read_instances(host.run_dir)
    # of a lease that cannot be read it is not known what it has: everything beyond the parts is taken back
    taken = set(range(1 << 10)) if instances.lost else set(read_records(host).wholes())
    for job, share in shares(instances.by_job, taken).items():
        path = host.run_dir / job / FILE
        try:
            if path.exists() and path.read_text(encoding="ascii") == str(share):
                continue
            if host.systemd.active(job):
                host.systemd.hold(instances.by_job[job], share)
                write_file(path, str(share), 0o400)
        except (OSError, LeaseError) as fault:
            tell(f"job {job}: its share of processors could not be changed: {fault}")


def note(one: Instance) -> str:
    """What its owner ought to know of the ceiling."""
    device = one.devices[0]
    most, part = share_text(min(one.up_to, device.of), device.of), share_text(device.shards, device.of)
    if quota.share_of(one.engine, one.devices) is None:
        return f"computing of a part is not limited here, so that --up-to {most} changes nothing"
    return f"it computes with up to {most} of each GPU while nobody else has it; its memory stays {part}"
