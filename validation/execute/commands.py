"""From a planned measurement to the probes that take it: which node runs what, with which arguments."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from validation.errors import RunError
from validation.model import Endpoint, Measurement, Node, Port, Scalar, Topology


@dataclass(frozen=True)
class Job:
    """The probe that measures, on the node where it runs, and the serving end that it needs, if any."""

    node: str
    probe: tuple[str, ...]
    server_node: str | None = None
    server: tuple[str, ...] = ()


def _options(params: dict[str, Scalar], **names: str) -> list[str]:
    """`--name value` for each parameter that the plan gives."""
    found = [(option, params[key]) for key, option in names.items() if params.get(key) is not None]
    return [
        word for option, value in found for word in (option, f"{value:g}" if isinstance(value, float) else f"{value}")
    ]


def port_of(topology: Topology, endpoint: Endpoint) -> Port:
    """The fabric port behind an endpoint; KeyError if the topology has none."""
    for port in topology.node(endpoint.node).ports:
        if port.interface == endpoint.port:
            return port
    raise KeyError(str(endpoint))


def _transport(m: Measurement, topology: Topology) -> Job:
    source, destination = m.endpoints
    source_address = port_of(topology, source).address
    destination_address = port_of(topology, destination).address
    probe = [m.kind, "--source", source_address, "--destination", destination_address]
    if m.kind == "path-mtu":
        return Job(source.node, (*probe, *_options(m.params, mtu="--mtu")))
    probe += _options(m.params, port="--port", seconds="--seconds")
    serve = ["--bind", destination_address, *_options(m.params, port="--port")]
    if m.kind == "tcp-latency":
        probe += _options(m.params, min_observations="--min-observations")
        return Job(source.node, tuple(probe), destination.node, ("serve", "sockperf", *serve))
    probe += _options(m.params, omit_s="--omit-s", interval_s="--interval-s", streams="--streams")
    serve += _options(m.params, interval_s="--interval-s")
    return Job(source.node, tuple(probe), destination.node, ("serve", "iperf3", *serve))


_RDMA_SERVERS = {
    "rdma-first-light": "pingpong",
    "rdma-bandwidth": "perftest",
    "rdma-latency": "perftest",
    "rdma-ucx": "ucx",
}


def _rdma(m: Measurement, topology: Topology) -> Job:
    """Both ends find their own device behind their own port; only the port's name and addresses are told."""
    source, destination = m.endpoints
    here, there = port_of(topology, source).address, port_of(topology, destination).address
    what = _options(
        m.params,
        port="--port",
        transport="--transport",
        size_bytes="--size-bytes",
        iterations="--iterations",
        seconds="--seconds",
        op="--op",
        qps="--qps",
        qp_timeout="--qp-timeout",
        bidirectional="--bidirectional",
        cm="--cm",
        mtu="--mtu",
        ucx_test="--ucx-test",
        warmup="--warmup",
    )
    probe = (m.kind, "--interface", source.port, "--address", here, "--peer", there, *what)
    serve = ["serve", _RDMA_SERVERS[m.kind], "--bind", there, "--interface", destination.port, "--peer", here, *what]
    if m.kind == "rdma-latency":
        serve += ["--test", "lat"]
    return Job(source.node, probe, destination.node, tuple(serve))


def _ports(m: Measurement, topology: Topology) -> Job:
    """A look at a node's RDMA ports; those that carry TCP only are left out."""
    ports = [port for port in topology.node(m.nodes[0]).ports if port.rdma]
    interfaces = [word for port in ports for word in ("--interface", port.interface)]
    return Job(m.nodes[0], (m.kind, *interfaces, *(["--brief"] if m.params.get("brief") else [])))


def _training(m: Measurement, topology: Topology) -> Job:
    """Launched on the first node of the measurement, which must stand in the fabric to talk to the ranks there."""
    hosts = [topology.node(name) for name in str(m.params["hosts"]).split(",")]
    launcher = topology.node(m.nodes[0])
    if not launcher.ports:
        launcher = hosts[0]

    def address(node: Node) -> str:
        return node.ports[0].address

    def network(node: Node) -> str:
        return str(ipaddress.ip_interface(f"{address(node)}/{node.ports[0].prefix}").network)

    slots = m.params["ranks_per_node"]
    probe = [m.kind, "--hosts", ",".join(f"{address(h)}:{slots}" for h in hosts)]
    probe += ["--networks", ",".join(dict.fromkeys(network(n) for n in (launcher, *hosts)))]
    probe += _options(m.params, ranks="--ranks", warmup="--warmup", steps="--steps", batch="--batch")
    if any(node.virtual for node in hosts):
        probe.append("--shared-cores")
    # mpirun ends its ranks in good order some seconds before the supervisor would kill it
    return Job(launcher.name, (*probe, "--time-limit-s", str(max(1, int(m.timeout_s) - 5))))


_REMOTING = ("remoting-copy", "remoting-isolate", "remoting-fraction")


def _remoting(m: Measurement) -> tuple[str, ...]:
    """On a client, by the toolkit's own commands there; the servers are named as the pool knows them."""
    options = _options(
        {key: value for key, value in m.params.items() if value != ""},
        servers="--servers",
        size_bytes="--size-bytes",
        repeat="--repeat",
        latency_count="--latency-count",
        server="--server",
        elsewhere="--elsewhere",
        parts="--parts",
    )
    # a program that hangs is ended before its probe would be, so that the lease is given back
    return (m.kind, *options, *(("--limit-s", f"{m.timeout_s - 30:g}") if m.kind == "remoting-copy" else ()))


def job_for(m: Measurement, topology: Topology) -> Job:
    """What to run for a measurement; RunError where plan and topology do not fit together."""
    try:
        if m.kind == "facts":
            interfaces = [word for p in topology.node(m.nodes[0]).ports for word in ("--interface", p.interface)]
            return Job(m.nodes[0], ("facts", *interfaces))
        if m.kind in ("rdma-ports", "ib-fabric"):
            return _ports(m, topology)
        if m.kind in ("path-mtu", "tcp-bandwidth", "tcp-latency"):
            return _transport(m, topology)
        if m.kind in _RDMA_SERVERS:
            return _rdma(m, topology)
        if m.kind == "utilisation":
            return Job(m.nodes[0], (m.kind, *_options(m.params, days="--days")))
        if m.kind in _REMOTING:
            return Job(m.nodes[0], _remoting(m))
        if m.kind == "training-short":
            return _training(m, topology)
    except (KeyError, IndexError, ValueError) as fault:
        raise RunError(f"plan.json: {m.id}: does not fit topology.json: {fault}; make a new run") from None
    raise RunError(f"plan.json: {m.id}: this release has no probe for kind {m.kind!r}; use the release that planned it")
