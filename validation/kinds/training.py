"""The short training job."""

from __future__ import annotations

from validation.kinds.record import Kind, names, network
from validation.model import Call, Job, Measurement, Topology
from validation.parsers import training


def _job(m: Measurement, topology: Topology) -> Job:
    """Launched on the first node of the measurement, which must stand in the fabric to talk to the ranks there."""
    hosts = [topology.node(name) for name in names(m, "hosts")]
    launcher = topology.node(m.nodes[0])
    if not launcher.ports:
        launcher = hosts[0]
    params = {
        **{key: m.params[key] for key in ("ranks", "warmup", "steps", "batch")},
        "hosts": [f"{host.ports[0].address}:{m.params['ranks_per_node']}" for host in hosts],
        "transport": str(m.params.get("transport", "tcp")),
        "ends": [f"{host.ports[0].interface}@{host.ports[0].address}" for host in hosts],
        "networks": list(dict.fromkeys(network(node) for node in (launcher, *hosts))),
        "shared_cores": any(node.virtual for node in hosts),
        # mpirun ends its ranks in good order some seconds before the supervisor would kill it
        "time_limit_s": max(1, int(m.timeout_s) - 5),
    }
    return Job(node=launcher.name, probe=Call(probe=m.kind, params=params))


KINDS = (
    Kind(
        name="training-short",
        title="Short distributed training",
        job=_job,
        parse=training.parse,
        headline="images_per_s",
        by_daemon=True,
    ),
)
