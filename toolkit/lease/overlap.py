"""Whether a GPU that Slurm gave is free: the server's own count, beside Slurm's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.host import Host
from toolkit.lease.instance_record import Instance
from validation.base.counting import number_of


class AlreadyTaken(LeaseError):
    """Slurm gave a GPU that is not free."""


def refuse_overlap(
    devices: Sequence[LeasedGpu], others: Mapping[str, Instance], native: Mapping[int, str] | None = None
) -> None:
    """Slurm counts shares; this is the second look, so that a GPU is never given out twice. others: leases by job;
    native: jobs that are none and have a whole GPU, by its index. AlreadyTaken where it is."""
    for device in devices:
        if device.index in (native or {}):
            raise AlreadyTaken(f"GPU {device.index} is job {(native or {})[device.index]}'s, which is no lease")
        given = [
            (job_id, other.shards)
            for job_id, instance in others.items()
            for other in instance.devices
            if other.gpu == device.gpu
        ]
        taken = sum(shards for _, shards in given)
        wanted = sum(one.shards for one in devices if one.index == device.index)
        if taken + wanted > device.of:
            raise AlreadyTaken(
                f"GPU {device.index} already has leases for {taken} of {number_of(device.of, 'shard')} (jobs "
                f"{', '.join(sorted({job_id for job_id, _ in given}))}); {wanted} more are more than one GPU"
            )


def native_records(host: Host) -> Path:
    """The folder in which each native job that may open GPUs has a file (module native); root alone may read it."""
    return host.run_dir.with_name("gpu-users")


def native_wholes(host: Host) -> dict[int, str]:
    """Native jobs that have a whole GPU of this server, by its index."""
    found: dict[int, str] = {}
    for path in native_records(host).glob("[0-9]*"):
        try:
            found |= {int(index): path.name for index in json.loads(path.read_text())["whole"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
