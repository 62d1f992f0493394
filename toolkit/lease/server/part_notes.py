"""What the owner of a part of a GPU ought to know of it: what was rounded, what it is, what does not hold it."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.lease.engines import LeasedGpu
from toolkit.lease.fraction import rounded, share_text
from toolkit.lease.machine.host import Host
from toolkit.lease.server_conf import ServerConf


def notes_on_parts(host: Host, devices: Sequence[LeasedGpu], conf: ServerConf) -> list[str]:
    """All of it, each once."""
    return [*_sizes(host, devices, conf), *_gaps(host, conf)]


def _sizes(host: Host, devices: Sequence[LeasedGpu], conf: ServerConf) -> list[str]:
    """What is no whole number, and what MIG instances are. SMs are limited by MPS alone."""
    gpus = {gpu.uuid: gpu for gpu in host.gpus.gpus()}
    instances = {one.uuid: one for gpu in gpus.values() for one in gpu.mig or ()}
    said = []
    for device in (device for device in devices if not device.whole):
        if device.mig:
            share, sm_count = share_text(device.shards, device.of), instances[device.uuid].sm_count
            said.append(f"{share} of a GPU is a MIG instance of {device.memory_mib} MiB and {sm_count} SMs")
        else:
            gpu = gpus[device.uuid]
            usable_mib, sms = gpu.memory_mib - gpu.reserved_mib, gpu.sm_count if conf.enforcement == "mps" else None
            said += rounded(device.shards, device.of, usable_mib, sms)
            if conf.enforcement == "mps" and sms is None:
                said.append(f"the number of SMs of a {gpu.name} is unknown, and so is what MPS rounds of a share")
    return list(dict.fromkeys(said))


def _gaps(host: Host, conf: ServerConf) -> list[str]:
    """What keeps nobody from the whole GPU who may run programs on this server."""
    gaps = host.fence.gaps() if conf.fence else ["device files of GPUs are not closed to its users"]
    return [f"{conf.node} does not hold parts against users who run programs there: {'; '.join(gaps)}"] if gaps else []
