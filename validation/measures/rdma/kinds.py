"""What is measured between two fabric ports over RDMA. First light comes first: nothing else is tried without it."""

from __future__ import annotations

from validation.kinds.record import FIRST, Kind, Parser, addresses
from validation.measures.rdma import first_light, gpu, perftest
from validation.model import Call, Job, Measurement, Topology

LIGHT = "rdma-first-light"
PAGE = "explanation/measuring/rdma.md"


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


def _kind(name: str, title: str, parse: Parser, measures: str, tool: str) -> Kind:
    return Kind(
        name=name,
        title=title,
        measures=measures,
        tool=tool,
        more=PAGE,
        job=_both_ends,
        parse=parse,
        headline=FIRST,
        needs=LIGHT,
        both_ends=True,
    )


KINDS = (
    Kind(
        name=LIGHT,
        title="RDMA works: ping-pong",
        measures="Checks that RDMA works from one port to another. Nothing else of RDMA runs before this passes.",
        tool="ibv_rc_pingpong, and the packet counters of both devices",
        more=PAGE,
        job=_both_ends,
        parse=first_light.first_light,
        headline=FIRST,
        bearable=("mtu",),  # a wrong MTU slows RDMA down and stops nothing
        both_ends=True,
        once=True,
    ),
    _kind(
        "rdma-bandwidth",
        "RDMA bandwidth",
        perftest.bandwidth,
        "Measures RDMA bandwidth from one port to another.",
        "ib_write_bw, ib_read_bw and ib_send_bw (perftest)",
    ),
    _kind(
        "rdma-latency",
        "RDMA latency",
        perftest.latency,
        "Measures RDMA latency from one port to another.",
        "ib_write_lat, ib_read_lat and ib_send_lat (perftest)",
    ),
    _kind(
        "rdma-gpu",
        "RDMA between GPUs' memory",
        gpu.parse,
        "Measures RDMA bandwidth between the memory of GPUs of two servers.",
        "ib_write_bw with CUDA (perftest)",
    ),
    _kind(
        "rdma-ucx",
        "RDMA by UCX",
        first_light.ucx,
        "Measures UCX over verbs from one port to another. No criterion judges it.",
        "ucx_perftest",
    ),
)
