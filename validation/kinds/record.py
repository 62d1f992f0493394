"""What a kind of measurement is, as one record, and what the records share."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from validation.kinds.parsing import Parsed
from validation.model import Call, Endpoint, Job, Measurement, Node, Param, Port, Topology
from validation.probes import ProbeDoc

Parser = Callable[[ProbeDoc, Mapping[str, Any]], Parsed]
Jobs = Callable[[Measurement, Topology], Job]

FIRST = "*"
"""A kind's headline where it is whatever metric a result has first."""


def _anywhere(node: Node, topology: Topology) -> str:
    return ""


@dataclass(frozen=True)
class OnEach:
    """How suite compute takes a measurement on each node by itself.

    `quick`: parameters in place of those of `params` where it is to be short, which then takes `quick_s`. `why_not`:
    why a node is left out, "" where it is not. `virtual_s`: how long it takes on a virtual node, 0: as on others.
    """

    params: Callable[[Node], dict[str, Param]]
    estimated_s: float
    quick: Mapping[str, Param] = field(default_factory=dict)
    quick_s: float = 0.0
    why_not: Callable[[Node, Topology], str] = _anywhere
    virtual_s: float = 0.0

    def asked(self, node: Node, short: bool) -> tuple[dict[str, Param], float]:
        """Parameters for a node, and how long it will take."""
        if node.virtual and self.virtual_s:
            return {**self.params(node), **(self.quick if short else {})}, self.virtual_s
        if not (short and self.quick):
            return self.params(node), self.estimated_s
        return {**self.params(node), **self.quick}, self.quick_s


@dataclass(frozen=True)
class Kind:
    """A kind of measurement. Its probe is validation/measures/FAMILY/NAME_probe.py (with _ for -).

    `title`: what reports call it. `measures`: what it measures, in words. `tool`: with which tool. `more`: the page of
    docs/ that explains it. `job`: what runs where; KeyError, IndexError or ValueError where plan and topology do
    not fit together. `parse`: the probe's document as samples and facts. `headline`: the metric whose median a progress
    line shows, FIRST, or "". `needs`: the kind that must work between the same ports first, or "". `bearable`: faults
    of this kind after which what needs it is tried all the same. `both_ends`: the serving end's document is part of the
    proof, and of the explanation of a failure. `repeat_by`: by hand it is repeated with the tool's own command line, or
    with the probe. `once`: no repeat makes it more precise, nothing of it is a figure with an interval. `by_daemon`:
    a daemon does the work, so it cannot be told from the programs of others. `on_controller`: its probe runs on the
    machine that runs the validation, and reaches the nodes by itself. `restarts`: its node boots
    meanwhile, and is connected again afterwards. `on_each`: suite compute takes it on each node by itself.
    """

    name: str
    title: str
    measures: str
    tool: str
    more: str
    job: Jobs
    parse: Parser
    headline: str = ""
    needs: str = ""
    bearable: tuple[str, ...] = ()
    both_ends: bool = False
    repeat_by: Literal["tool", "probe"] = "tool"
    once: bool = False
    by_daemon: bool = False
    on_controller: bool = False
    restarts: bool = False
    on_each: OnEach | None = None


def on_node(m: Measurement, **params: Any) -> Job:
    """A job of the measurement's own probe on its first node, with the plan's parameters and `params`."""
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params={**m.params, **params}))


def port_of(topology: Topology, endpoint: Endpoint) -> Port:
    """The fabric port behind an endpoint; KeyError if the topology has none."""
    for port in topology.node(endpoint.node).ports:
        if port.interface == endpoint.port:
            return port
    raise KeyError(str(endpoint))


def addresses(m: Measurement, topology: Topology) -> tuple[str, str]:
    """Fabric addresses of source and destination; KeyError if the topology lacks a port."""
    source, destination = m.endpoints
    return port_of(topology, source).address, port_of(topology, destination).address


def network(node: Node) -> str:
    """The network of a node's first fabric port, CIDR."""
    port = node.ports[0]
    return str(ipaddress.ip_interface(f"{port.address}/{port.prefix}").network)


def names(m: Measurement, key: str) -> tuple[str, ...]:
    """A parameter that is a list of names; none where the plan does not give it."""
    found = m.params.get(key)
    return found if isinstance(found, tuple) else ()
