"""What is measured between two fabric ports over RDMA. First light comes first: nothing else is tried without it."""

from __future__ import annotations

from validation.kinds.record import FIRST, Kind, Parser, addresses
from validation.model import Call, Job, Measurement, Topology
from validation.parsers import perftest, rdma_gpu, rdma_tools

LIGHT = "rdma-first-light"


def _both_ends(m: Measurement, topology: Topology) -> Job:
    """Both ends find their own device behind their own port; only the port's name and addresses are told."""
    (source, destination), (here, there) = m.endpoints, addresses(m, topology)
    client = {**m.params, "interface": source.port, "address": here, "peer": there}
    server = {**m.params, "interface": destination.port, "address": there, "peer": here}
    return Job(
        node=source.node,
        probe=Call(probe=m.kind, params=client),
        server_node=destination.node,
        server=Call(probe="serve", params={"tool": m.kind, "asked": server}),
    )


def _kind(name: str, title: str, parse: Parser) -> Kind:
    return Kind(name=name, title=title, job=_both_ends, parse=parse, headline=FIRST, needs=LIGHT, both_ends=True)


KINDS = (
    Kind(
        name=LIGHT,
        title="RDMA works: ping-pong",
        job=_both_ends,
        parse=rdma_tools.first_light,
        headline=FIRST,
        bearable=("mtu",),  # a wrong MTU slows RDMA down and stops nothing
        both_ends=True,
        once=True,
    ),
    _kind("rdma-bandwidth", "RDMA bandwidth", perftest.bandwidth),
    _kind("rdma-latency", "RDMA latency", perftest.latency),
    _kind("rdma-gpu", "RDMA between GPUs' memory", rdma_gpu.parse),
    _kind("rdma-ucx", "RDMA by UCX", rdma_tools.ucx),
)
