"""RDMA ports of a node. Facts of a port are keyed by its interface, `fab0.state`; what the node has not is absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.model import Sample, Scalar
from validation.parsers.common import Facts, Parsed, ParseError, count, flag, number, short
from validation.probes import ProbeDoc

TEXTS = ("state", "physical_state", "link_layer", "rate_words", "firmware", "board", "driver")
QOS = ("roce_mode", "tos", "trust", "traffic_class", "pause", "ecn")

RDMA_MTUS = (256, 512, 1024, 2048, 4096)  # enum ibv_mtu
MOST_GBPS = 10_000.0
"""More than any port's rate: 12 lanes of XDR are 2400. Ours, against numbers that are none."""


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples of rate and active MTU, and the facts `ports` (interfaces), those of each port, and of the node:
    memlock_bytes, memlock_user, memlock_unread, policy (whether provisioning has one) and policy.KEY.
    """
    ports = doc["facts"]["ports"]
    if not isinstance(ports, list) or not ports:
        raise ParseError("rdma-ports: no port was looked at")
    facts: Facts = {"ports": [str(port["interface"]) for port in ports]}
    samples: list[Sample] = []
    for port in ports:
        samples += _port(port, facts)
    if "memlock" in doc["facts"]:
        limit = doc["facts"]["memlock"]
        if limit["bytes"] not in (None, -1):  # not known, and unlimited
            count(limit["bytes"], "rdma-ports: limit of locked memory")
        facts["memlock_bytes"] = limit["bytes"]
        facts["memlock_user"], facts["memlock_unread"] = str(limit["user"]), str(limit["unread"])
    if "policy" in doc["facts"]:
        policy = doc["facts"]["policy"]
        facts["policy"] = policy is not None
        facts.update({f"policy.{key}": _plain(key, value) for key, value in (policy or {}).items()})
    return samples, facts


def _port(port: Mapping[str, Any], facts: Facts) -> list[Sample]:
    name = str(port["interface"])
    facts[f"{name}.device"] = str(port["device"])
    facts[f"{name}.operstate"], facts[f"{name}.mtu"] = str(port["operstate"]), str(port["mtu"])
    facts[f"{name}.present"] = flag(port["present"], f"rdma-ports: {name}: present")
    if not port["device"]:
        return []
    facts[f"{name}.port"] = int(count(port["port"], f"rdma-ports: {name}: port"))
    for key in TEXTS:
        facts[f"{name}.{key}"] = str(port[key])
    if not facts[f"{name}.state"] or not facts[f"{name}.link_layer"]:
        raise ParseError(f"rdma-ports: {name}: state or link layer of {port['device']} is empty")
    facts[f"{name}.gids"] = [str(gid) for gid in port["gids"]]
    counters = port["counters"]
    facts[f"{name}.counters"] = [f"{key} {count(value, key):.0f}" for key, value in sorted(counters.items())]
    samples = []
    if port["rate_gbps"] is not None:
        rate = number(port["rate_gbps"], f"rdma-ports: {name}: rate")
        if rate > MOST_GBPS:
            raise ParseError(f"rdma-ports: {name}: {rate:g} Gbit/s is no rate of a port")
        facts[f"{name}.rate_gbps"] = rate
        samples.append(Sample(metric=f"{name}.rate_gbps", value=rate, unit="Gbit/s"))
    if "active_mtu_bytes" in port:
        facts[f"{name}.active_mtu_unread"] = str(port["active_mtu_unread"])
        if port["active_mtu_bytes"] is not None:
            mtu = port["active_mtu_bytes"]
            if isinstance(mtu, float) or mtu not in RDMA_MTUS:
                raise ParseError(f"rdma-ports: {name}: {short(mtu)} is no RDMA MTU")
            facts[f"{name}.active_mtu_bytes"] = mtu
            samples.append(Sample(metric=f"{name}.active_mtu_bytes", value=mtu, unit="bytes"))
    if "qos" in port:
        for key in (*QOS, "dscp_prio", "pfc"):
            facts[f"{name}.{key}"] = _plain(key, port["qos"][key])
        facts[f"{name}.unread"] = [str(reason) for reason in port["qos"]["unread"]]
    return samples


def _plain(key: str, value: Any) -> Scalar | list[str]:
    """Lists and maps of settings as lists of text: PFC priorities `["3"]`, the DSCP map `["26:3", "48:6"]`."""
    if isinstance(value, dict):
        return sorted(f"{dscp}:{prio}" for dscp, prio in value.items())
    if isinstance(value, list):
        return [str(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ParseError(f"rdma-ports: {key}: {value!r} cannot be")
