"""The faults of the drill as they would read on real machines: what a node says with one of them. Constructed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.healthy_nodes import as_built
from tests.support.rdma_case import machines, ports_of
from tests.support.site import REAL_FACTS, addressed, healthy, plan_of, result, verdict_of, with_facts
from tests.support.truth import measured
from validation.model import Failure, Measurement, Result, VerdictDoc
from validation.model.times import moment
from validation.rules.fabric import load_fabric

SICK = "gpu2"
TOPOLOGY = machines(4)
PLAN = plan_of(TOPOLOGY, ("preflight", "as-built", "transport"), "roce40")
FABRIC = load_fabric("roce40")
ADDRESS = {n.name: n.ports[0].address for n in TOPOLOGY.nodes}
MIB = 1 << 20
Facts = dict[str, Any]


def _second(name: str) -> float:
    """What a node's clock says while it is looked at."""
    started = moment(healthy(PLAN.measurement(f"facts.{name}")).provenance.started)
    assert started is not None
    return started.timestamp() + 0.5


def state(name: str, **changes: Any) -> Facts:
    """Of a healthy node."""
    room = {"folder": "/", "size_bytes": 1000 * MIB, "free_bytes": 500 * MIB, "inodes_free": 1000, "read_only": False}
    return {
        "addresses": [{"interface": "fab0", "address": ADDRESS[name]}], "utc_offset_s": 0,
        "name_servers": [{"address": "10.0.2.3", "answers": True}], "file_systems": [room],
        "others_busy_processors": 0.1, "utc_s": _second(name), **changes,
    }  # fmt: skip


def _full(facts: Facts) -> Facts:
    return {"state": state(SICK, file_systems=[{**state(SICK)["file_systems"][0], "free_bytes": 0}])}


def _clock(facts: Facts) -> Facts:
    return {"state": state(SICK, utc_s=_second(SICK) + 10800)}


def _down(facts: Facts) -> Facts:
    return {"fabric_ports": [{**facts["fabric_ports"][0], "operstate": "down"}]}


def _taken(facts: Facts) -> Facts:
    own = state(SICK)["addresses"]
    return {"state": state(SICK, addresses=[*own, {"interface": "fab0", "address": ADDRESS["gpu3"]}])}


FACTS: dict[str, Callable[[Facts], Facts]] = {
    "duplicate-address": _taken,
    "port-down": _down,
    "wrong-clock": _clock,
    "wrong-time-zone": lambda f: {"state": state(SICK, utc_offset_s=3600)},
    "dns-dead": lambda f: {"state": state(SICK, name_servers=[{"address": "10.0.2.9", "answers": False}])},
    "disk-full": _full,
    "noisy-neighbour": lambda f: {
        "state": state(SICK, others_busy_processors=3.0, busiest=[{"name": "sh", "pid": 42, "processors": 3.0}])
    },
    "nccl-pinned": lambda f: {
        "library_env": {"settings": [{"name": "NCCL_PROTO", "value": "Simple", "where": "/etc/environment"}]}
    },
    "sysctl-drift": lambda f: {
        "tuning": {"governors": [], "sysctls": [{"name": "net.core.somaxconn", "wanted": "4096", "found": "128"}]}
    },
    "reboot-waits": lambda f: {"reboot_pending": ["linux-image-6.8.0-137-generic"]},
}
"""Fault -> what the sick node's facts say otherwise."""
CHECKS = {
    "names-wrong": "names",
    "clock-free": "clock",
    "docker-stopped": "docker",
    "unit-failed": "unit",
    "few-files": "files",
}
"""Fault -> a word of the as-built check that fails; the first check where none has it."""


def _no_device(facts: Facts, after: bool) -> None:
    (one,) = facts["ports"]
    facts["ports"] = [{k: one[k] for k in ("interface", "present", "operstate", "mtu")} | {"device": ""}]


def _version_1(facts: Facts, after: bool) -> None:
    facts["ports"][0]["gids"] = [{**one, "type": "IB/RoCE v1"} for one in facts["ports"][0]["gids"]]


def _little(facts: Facts, after: bool) -> None:
    if not after:
        facts["memlock"] = {"bytes": 65536, "user": "nobody", "unread": ""}


def _unmarked(facts: Facts, after: bool) -> None:
    if not after:
        facts["ports"][0]["qos"]["dscp_prio"] = {}


PORTS = {"rxe-missing": _no_device, "rocev1-gid": _version_1, "memlock-low": _little, "dscp-unset": _unmarked}
"""Fault -> what changes in what the node says of its RDMA ports."""
RATES = {
    "slow-link": lambda w: 0.1 if any(e.startswith(f"{SICK}/") for e in w.ends) else 1.0,
    "slow-sending": lambda w: 0.1 if w.sender.startswith(SICK) or (w.both and SICK in str(w.ends)) else 1.0,
    "slow-receiving": lambda w: 0.1 if w.receiver.startswith(SICK) or (w.both and SICK in str(w.ends)) else 1.0,
}
MUTE = {"cable-swapped": ("path-mtu", "tcp-"), "port-closed": ("tcp-bandwidth",)}
"""Fault -> beginnings of the kinds that come to no result between the sick node and others."""
KINDS = (
    *FACTS,
    *CHECKS,
    *PORTS,
    *RATES,
    *MUTE,
    "wrong-mtu",
    "lossy-link",
    "firewall-4791",
    "dead-node",
    "flapping-port",
)


def _failed(m: Measurement, words: str, status: str = "failed", **more: Any) -> Result:
    return result(m, status=status, error=words, **more)


def said(m: Measurement, kind: str) -> Result:
    """What a measurement comes to where the sick node has this fault ("": none)."""
    sick = SICK in m.nodes
    if kind == "dead-node" and sick:
        return _failed(m, f"{SICK}: connection lost", "unreachable", facts={"unreachable": SICK})
    if kind in MUTE and sick and m.kind.startswith(MUTE[kind]) and len(m.endpoints) == 2:
        return _failed(m, "no answer within 10 s")
    if m.kind == "facts":
        name = m.nodes[0]
        found = healthy(m, facts={**REAL_FACTS, "cpu_count": 8, "state": state(name)})
        known = found.facts.model_dump(mode="json")  # type: ignore[union-attr]
        more: Facts = {}
        if kind == "flapping-port":
            more = {"fabric_ports": [{**known["fabric_ports"][0], "carrier_changes": 2}]}
        if name == SICK and kind in FACTS:
            more = FACTS[kind](known)
        return with_facts(found, **more) if more else found
    if m.kind == "rdma-ports":
        return ports_of(TOPOLOGY, m, PORTS.get(kind) if m.nodes[0] == SICK else None)
    if m.kind == "as-built" and m.nodes[0] == SICK and kind in CHECKS:
        found = as_built(m)
        checks = list(found.facts.checks)  # type: ignore[union-attr]
        at = next((i for i, c in enumerate(checks) if CHECKS[kind] in c.name), 0)
        checks[at] = checks[at].model_copy(update={"outcome": "failed", "words": f"{kind} was planted"})
        samples = tuple(
            s.model_copy(update={"value": len(checks) - 1 if s.metric == "checks_passed" else 1}) for s in found.samples
        )
        facts = found.facts.model_copy(update={"checks": tuple(checks)})  # type: ignore[union-attr]
        return found.model_copy(update={"facts": facts, "samples": samples})
    if m.kind.startswith("rdma-") and m.endpoints and kind == "firewall-4791" and sick:
        failure = Failure(code="path", at=SICK, words="no answer over UDP 4791")
        return _failed(m, f"{SICK}: no answer over UDP 4791", failure=failure)
    if m.endpoints or m.kind in ("incast", "all-to-all", "path-mtu"):
        one = measured(m, FABRIC, RATES.get(kind, lambda w: 1.0))
        if m.kind == "path-mtu" and sick and kind == "wrong-mtu":
            one = one.model_copy(update={"samples": (one.samples[0].model_copy(update={"value": 1500}),)})
        if m.kind == "path-mtu" and kind == "flapping-port":
            own = {"source": ADDRESS[m.nodes[0]], "carrier_changes": 8 if m.nodes[0] == SICK else 2}
            one = Result.model_validate({**dict(one), "facts": own})
        if m.kind == "tcp-bandwidth" and sick and kind == "lossy-link":
            lost = [s.model_copy(update={"value": 9e6}) if s.metric == "retransmits" else s for s in one.samples]
            one = one.model_copy(update={"samples": tuple(lost)})
        return one
    return healthy(m, link_gbps=39.5)


def judged(kind: str) -> VerdictDoc:
    """The verdict on four real machines of which one has this fault."""
    results = addressed(TOPOLOGY, [said(m, kind) for m in PLAN.measurements])
    return verdict_of(TOPOLOGY, PLAN, results, fabric="roce40")
