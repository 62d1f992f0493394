"""What is asked of storage: a node alone, all nodes at the same time, and what they see of each other."""

from __future__ import annotations

import hashlib
from typing import Any

from validation.kinds.record import Kind
from validation.measures.storage import parse
from validation.measures.storage.plan import declared
from validation.model import Call, Job, Measurement, Seat, Topology


def call_for(m: Measurement, topology: Topology, name: str) -> Call:
    """What one of its nodes is asked. All of them have the same token: it names the folder in which they meet."""
    storage = declared(topology.node(name), str(m.params["name"]))
    params: dict[str, Any] = {key: list(v) if isinstance(v, tuple) else v for key, v in m.params.items()}
    token = hashlib.sha256(f"{topology.site} {m.id}".encode()).hexdigest()[:12]
    more = {"path": storage.path, "node": name, "token": token, "filesystem": storage.filesystem or ""}
    return Call(probe=m.kind, params={**params, **more})


def _alone(m: Measurement, topology: Topology) -> Job:
    return Job(node=m.nodes[0], probe=call_for(m, topology, m.nodes[0]))


def _all(m: Measurement, topology: Topology) -> Job:
    """Every node runs the probe; they begin together and meet in the storage itself."""
    seats = tuple(Seat(node=name, call=_beside(m, topology, name)) for name in m.nodes)
    return Job(node=seats[0].node, probe=seats[0].call, sending=seats)


def _beside(m: Measurement, topology: Topology, name: str) -> Call:
    """What one of them is asked; beside the network with its own address and that of the next one."""
    call = call_for(m, topology, name)
    if "port" not in m.params:
        return call
    after = m.nodes[(m.nodes.index(name) + 1) % len(m.nodes)]
    mine, next_one = (topology.node(one).ports[0].address for one in (name, after))
    return call.model_copy(update={"params": {**call.params, "address": mine, "peer": next_one}})


KINDS = (
    Kind(
        name="storage-alone",
        title="Storage of a node alone",
        measures="Reads and writes a declared storage past the node's cache, in one stream and in many; small files.",
        tool="fio with direct I/O; small files by the probe",
        more="how-to/storage.md",
        job=_alone,
        parse=parse.parse_alone,
        headline="storage_read_gb_s",
        repeat_by="probe",
    ),
    Kind(
        name="storage-together",
        title="Storage of all nodes at once",
        measures="Lets all nodes that share a storage read and write it at the same time.",
        tool="fio with direct I/O",
        more="how-to/storage.md",
        job=_all,
        parse=parse.parse_together,
        headline="storage_all_read_gb_s",
        repeat_by="probe",
    ),
    Kind(
        name="storage-shared",
        title="What nodes see of each other in a shared storage",
        measures="Lets nodes write in turn in a shared storage until all others have read it; a lock over nodes.",
        tool="files and flock(2) by the probe",
        more="how-to/storage.md",
        job=_all,
        parse=parse.parse_shared,
        headline="storage_seen_s",
        repeat_by="probe",
    ),
)
