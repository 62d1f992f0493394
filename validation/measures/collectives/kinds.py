"""Collective operations: all-reduce and others between GPUs, inside a node and across nodes."""

from __future__ import annotations

from typing import Any

from validation.kinds.record import Kind, names, network
from validation.measures.collectives import parse as collectives_parse
from validation.model import Call, Job, Measurement, Node, Port, Topology


def _ports(host: Node, rdma: bool, rail: object) -> list[Port]:
    """The ports that NCCL may take; of one rail alone its own."""
    if isinstance(rail, int):
        return [[port for port in host.ports if port.rdma][rail]]
    return [port for port in host.ports if port is host.ports[0] or not rdma or port.rdma]


def _job(m: Measurement, topology: Topology) -> Job:
    """Launched on the first node of the measurement, which must stand in the fabric to talk to the ranks there."""
    hosts = [topology.node(name) for name in names(m, "hosts")]
    launcher = topology.node(m.nodes[0])
    if not launcher.ports:
        launcher = hosts[0]
    rdma = m.params["transport"] != "tcp"
    ports = {host.name: _ports(host, rdma, m.params.get("rail")) for host in hosts}
    more: dict[str, object] = {key: list(names(m, key)) for key in ("ops", "variables") if key in m.params}
    params: dict[str, Any] = {
        **more,
        **{key: m.params[key] for key in ("ranks", "iterations", "repeats", "budget_s", "transport")},
        "sizes": [int(size) for size in names(m, "sizes")],
        "hosts": [f"{host.ports[0].address}:{m.params['ranks_per_node']}" for host in hosts],
        "ends": [f"{port.interface}@{port.address}" for host in hosts for port in ports[host.name]],
        "networks": list(dict.fromkeys(network(node) for node in (launcher, *hosts))),
        "shared_cores": any(node.virtual for node in hosts),
        # mpirun ends its ranks in good order some seconds before the supervisor would kill it
        "time_limit_s": max(1, int(m.timeout_s) - 5),
    }
    return Job(node=launcher.name, probe=Call(probe=m.kind, params=params))


KINDS = (
    Kind(
        name="collectives",
        title="Collective operations",
        measures="Measures the bus bandwidth of all-reduce and four other operations, and reads which path NCCL took.",
        tool="nccl-tests in the training container, or torch.distributed",
        more="explanation/measuring/collectives.md",
        job=_job,
        parse=collectives_parse.parse,
        headline="all_reduce_busbw_gb_s",
        by_daemon=True,
    ),
)
