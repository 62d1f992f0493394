"""What is measured between two fabric ports over TCP, and the MTU of the path between them."""

from __future__ import annotations

from validation.kinds.record import Kind, addresses
from validation.measures.fabric import ping
from validation.measures.tcp import iperf3, sockperf
from validation.model import Call, Job, Measurement, Topology


def _one_end(m: Measurement, topology: Topology) -> Job:
    source, destination = addresses(m, topology)
    params = {**m.params, "source": source, "destination": destination}
    return Job(node=m.endpoints[0].node, probe=Call(probe=m.kind, params=params))


def _served(m: Measurement, topology: Topology, tool: str, *keys: str) -> Job:
    job, served = _one_end(m, topology), m.endpoints[1].node
    asked = {"bind": job.probe.params["destination"], **{key: m.params[key] for key in keys}}
    server = Call(probe="serve", params={"tool": tool, "asked": asked})
    return job.model_copy(update={"server_node": served, "server": server})


def _bandwidth(m: Measurement, topology: Topology) -> Job:
    return _served(m, topology, "iperf3", "port", "interval_s")


def _latency(m: Measurement, topology: Topology) -> Job:
    """sockperf's server waits for further clients, so it is stopped."""
    return _served(m, topology, "sockperf", "port").model_copy(update={"server_ends": False})


KINDS = (
    Kind(
        name="path-mtu",
        title="Path MTU, do-not-fragment probes",
        measures="Finds the largest packet that passes between two ports without being divided.",
        tool="ping with do-not-fragment",
        more="explanation/measuring/nodes.md",
        job=_one_end,
        parse=ping.parse,
        headline="path_mtu_bytes",
        once=True,
    ),
    Kind(
        name="tcp-bandwidth",
        title="TCP bandwidth",
        measures="Measures TCP bandwidth from one port to another, and counts segments that were sent again.",
        tool="iperf3",
        more="explanation/verdicts.md",
        job=_bandwidth,
        parse=iperf3.parse,
        headline="tcp_bandwidth_gbps",
    ),
    Kind(
        name="tcp-latency",
        title="TCP round-trip time",
        measures="Measures the round-trip time of TCP messages between two ports.",
        tool="sockperf",
        more="explanation/verdicts.md",
        job=_latency,
        parse=sockperf.parse,
        headline="tcp_rtt_us",
    ),
)
