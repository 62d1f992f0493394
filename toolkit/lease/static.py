"""Leases without Slurm, on one server: an administrator gives out an instance, and what Slurm would do is missing.

No queue (what is not free is refused), no policies, no accounting, no preemption, no way for users to ask themselves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from toolkit.lease import LeaseError, handover, instance
from toolkit.lease.fraction import parse_part, share_text
from toolkit.lease.host import Host, this_host
from toolkit.lease.job_comment import JobComment
from toolkit.lease.journal import tell_all
from toolkit.lease.overlap import gpu_of
from toolkit.lease.pool import where_text
from toolkit.lease.server_conf import ServerConf, read_server_conf
from toolkit.lease.slurm_text import Held
from toolkit.lease.text import several
from toolkit.lease.turns import turn

SLURM_CONF = Path("/etc/slurm/slurm.conf")
MISSING = "without Slurm: no queue, no policies, no accounting, no preemption"


def choose(host: Host, count: int, shards: int, conf: ServerConf, known: dict[str, dict[str, Any]]) -> list[Held]:
    """GPUs with so many shards free, the fullest first, so that whole ones stay whole; each of another GPU, because one
    instance shows a GPU to its program once."""
    of = conf.shards_per_gpu or 1
    free = {gpu.uuid: [of, gpu.index] for gpu in host.gpus.gpus()}
    for data in known.values():
        for device in data.get("devices", []):
            if gpu_of(device) in free:
                free[gpu_of(device)][0] -= device["shards"]
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
    gpus = {int(device["index"]) for device in instance.known(host).get(name, {}).get("devices", [])}
    with turn(host, name):
        left = instance.end_instance(host, name)
    if left:
        raise LeaseError(f"{name}: not everything was removed: {'; '.join(left)}")
    _clear(host, conf, gpus)


def start(host: Host, wanted: dict[str, Any], conf: ServerConf) -> dict[str, Any]:
    """Start an instance; its endpoint, with `what` it is and the `rounding` of a part that is no whole number of this
    server's shards. LeaseError when it does not start, and then nothing stays."""
    if SLURM_CONF.exists():
        raise LeaseError(f"{conf.node} is managed by Slurm, which would grant the same GPUs; omit --static")
    known = instance.known(host)
    number = max([int(name[1:]) for name in known if name[1:].isdigit() and name.startswith("s")], default=0) + 1
    job_id = f"s{number}"
    part, count = parse_part(str(wanted["part"]), conf.shards_per_gpu), int(wanted["count"])
    what = f"{count} x {part.text} GPU"
    comment = JobComment(tuple(wanted["clients"]), wanted["host"], "hold", what, int(wanted["seconds"]))
    held = choose(host, count, part.shards, conf, known)
    _clear(host, conf, {one.index for one in held})
    try:
        with turn(host, job_id):
            instance.begin(host, job_id, number, 0, comment.text(), held, conf)
    except LeaseError:
        instance.end_instance(host, job_id)
        raise
    told: dict[str, Any] = json.loads((host.run_dir / job_id / instance.ENDPOINT).read_text())
    return told | {"what": what, "rounding": part.note}


def listed(known: dict[str, dict[str, Any]], node: str) -> list[dict[str, Any]]:
    """Static leases on this server."""
    found = []
    for name, data in sorted(known.items()):
        if name.startswith("s") and data:
            devices = data["devices"]
            part = share_text(devices[0]["shards"], devices[0]["of"])
            where = where_text((node, device["index"]) for device in devices)
            found.append({"lease": name, "what": f"{len(devices)} x {part} GPU", "where": where,
                          "host": data["host"], "until": data["deadline"]})  # fmt: skip
    return found


def main() -> int:
    """`static start < REQUEST`, `static list`, `static end NAME`: JSON on stdout; by ssh, as root."""
    try:
        host = this_host()
        conf = read_server_conf(host.server_conf)
        if sys.argv[1:2] == ["start"]:
            print(json.dumps(start(host, json.load(sys.stdin), conf)))
        elif sys.argv[1:2] == ["list"]:
            print(json.dumps(listed(instance.known(host), conf.node)))
        else:
            name = sys.argv[2]
            if name not in instance.known(host) or not name.startswith("s"):
                raise LeaseError(f"{conf.node} has no static lease {name}")
            _end(host, conf, name)
            print("{}")
    except LeaseError as fault:
        print(json.dumps({"error": str(fault)}))
    return 0
