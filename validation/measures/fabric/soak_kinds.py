"""Traffic from one fabric port to another, beside the burn-in of the nodes."""

from __future__ import annotations

from validation.kinds.record import Kind, addresses
from validation.measures.fabric import soak_parse
from validation.model import Call, Job, Measurement, Topology


def _job(m: Measurement, topology: Topology) -> Job:
    """The serving end begins anew after each session, and is stopped at the end."""
    (source, destination), (here, there) = m.endpoints, addresses(m, topology)
    client = {**m.params, "interface": source.port, "address": here, "peer": there}
    server = {**m.params, "interface": destination.port, "address": there, "peer": here}
    return Job(
        node=source.node,
        probe=Call(probe=m.kind, params=client),
        server_node=destination.node,
        server=Call(probe="serve", params={"tool": m.kind, "asked": server}),
        server_ends=False,
    )


KINDS = (
    Kind(
        name="soak-fabric",
        title="Traffic beside the burn-in",
        measures="Sends from every fabric port to the next node's port while the burn-in runs.",
        tool="ib_write_bw where both ports have RDMA, else iperf3",
        more="explanation/measuring/burn-in.md",
        job=_job,
        parse=soak_parse.parse,
        headline="soak_gbps",
        repeat_by="probe",
        once=True,
    ),
)
