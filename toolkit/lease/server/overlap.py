"""Whether a GPU that Slurm gave is free: the server's own count, beside Slurm's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
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
