"""RDMA ports of a node."""

from __future__ import annotations

from collections.abc import Mapping

from validation.kinds.parsing import Parsed, ParseError, as_facts
from validation.measures.rdma.ports_facts import RdmaPortsFacts
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples of each port's rate and active MTU, and the facts."""
    raw = doc["facts"]
    if not params.get("brief") and not {"memlock", "policy"} <= set(raw):
        raise ParseError("rdma-ports: memlock or policy is missing")
    facts = as_facts(RdmaPortsFacts, raw, "rdma-ports")
    samples = []
    for port in facts.ports:
        if port.rate_gbps is not None:
            samples.append(Sample(metric=f"{port.interface}.rate_gbps", value=port.rate_gbps, unit="Gbit/s"))
        if port.active_mtu_bytes is not None:
            mtu = float(port.active_mtu_bytes)
            samples.append(Sample(metric=f"{port.interface}.active_mtu_bytes", value=mtu, unit="bytes"))
    return samples, facts
