"""A small lab, its plan, and results as a healthy run would give them; tests spoil them one at a time."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterable
from typing import Any

from validation.catalogue import load_criteria
from validation.fabric import load_fabric
from validation.judge import judge
from validation.model import (
    Bom,
    Denied,
    LabLink,
    Measurement,
    Node,
    Plan,
    Port,
    Provenance,
    Result,
    RunInfo,
    Sample,
    SshTarget,
    Topology,
    VerdictDoc,
)
from validation.profile import Profile
from validation.suites import make_plan
from validation.waiver import Waiver

CRITERIA = load_criteria()
RUN = "run-1"
ALL = ("preflight", "transport", "training")
STACK = {"os": "debian 12", "openmpi": "4.1.4"}
BOM = Bom(model="nspawn", gpu_model="", gpu_count=0, nic_model="", fabric_port_count=1)
FACTS: dict[str, Any] = {
    "type": "node",
    "virt": "systemd-nspawn",
    "lab": "lab",
    "model": "nspawn",
    "gpu_count": 0,
    "gpu_model": "",
    "nic_model": "",
    "fabric_ports": [{"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 10000}],
    "rdma_devices": [],
    "pci": [{"what": "nic", "interface": "fab0"}],
    "os": "debian 12",
    "kernel": "6.1.0",
    "python": "3.11.2",
    "openmpi": "4.1.4",
    "docker": "20.10.24",
    "horovod": "",
    "torch": "",
    "probes": "0.1.0",
    **dict.fromkeys(("driver", "fabric_manager", "cuda", "cudnn", "nccl", "ofed", "container_toolkit", "dcgm"), ""),
    **dict.fromkeys(("slurm", "stack_release"), ""),
    **{key: [] for key in ("stand_ins", "not_applicable", "drift", "reboot_pending")},
}
RATES = {"1": 500.0, "intra": 620.0, "inter": 900.0}


def node(name: str, index: int, **changes: Any) -> Node:
    group = {"head": "heads", "client1": "clients"}.get(name, "gpu_servers")
    values: dict[str, Any] = {
        "name": name,
        "groups": (group,),
        "ssh": SshTarget(host=f"10.77.0.{index}"),
        "ports": (Port(interface="fab0", address=f"10.78.0.{index}", prefix=24),),
        "slots": 2 if group == "gpu_servers" else 1,
        "bom": BOM,
        "stack": STACK,
        "virtual": "systemd-nspawn",
    }
    return Node(**{**values, **changes})


def lab(names: Iterable[str] = ("head", "client1", "gpu1", "gpu2"), rate: float = 1.0) -> Topology:
    nodes = tuple(node(name, 11 + i) for i, name in enumerate(names))
    return Topology(site="lab", nodes=nodes, lab_link=LabLink(rate_gbps=rate, rtt_max_us=1000))


def hardware(names: Iterable[str] = ("head", "client1", "gpu1", "gpu2")) -> Topology:
    """The same nodes as real machines, as far as the inventory says."""
    nodes = tuple(node(name, 11 + i, virtual=None) for i, name in enumerate(names))
    return Topology(site="customer", nodes=nodes)


def plan_of(topology: Topology, suites: Iterable[str] = ALL, fabric: str = "tcp10") -> Plan:
    return make_plan(RUN, topology, load_fabric(fabric), CRITERIA, tuple(suites))


def around(value: float, count: int, unit: str, metric: str, spread: float = 0.002, seed: str = "") -> list[Sample]:
    generator = random.Random(f"{metric}{value}{seed}")
    return [
        Sample(metric=metric, value=value * (1 + generator.uniform(-spread, spread)), unit=unit) for _ in range(count)
    ]


def result(measurement: Measurement, samples: Iterable[Sample] = (), **changes: Any) -> Result:
    provenance = Provenance(
        nodes=measurement.nodes,
        tool="test",
        tool_version="1",
        command=("test",),
        started="2026-11-21T10:00:00Z",
        ended="2026-11-21T10:00:01Z",
        duration_s=1,
    )
    values: dict[str, Any] = {"run": RUN, "measurement": measurement.id, "status": "ok", "samples": tuple(samples)}
    return Result(**{**values, "provenance": provenance, **changes})


def healthy(measurement: Measurement, link_gbps: float = 1.0, facts: dict[str, Any] | None = None) -> Result:
    """What a healthy node or link of the lab measures."""
    if measurement.kind == "facts":
        return result(measurement, facts={**FACTS, **(facts or {})})
    if measurement.kind == "path-mtu":
        return result(measurement, [Sample(metric="path_mtu_bytes", value=9000, unit="bytes")])
    if measurement.kind == "tcp-bandwidth":
        return result(measurement, around(0.985 * link_gbps, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=measurement.id))
    if measurement.kind == "tcp-latency":
        return result(measurement, around(40, 20, "us", "tcp_rtt_us", 0.05, seed=measurement.id))
    if measurement.kind.startswith("rdma-") and measurement.endpoints:
        return healthy_rdma(measurement)
    if measurement.kind == "rdma-ports":
        from tests.support.rdma_case import ports_of  # which stands on this module

        return ports_of(LAB, measurement, None)
    rate = RATES[str(measurement.params["label"])]
    return result(measurement, around(rate, 100, "images/s", "images_per_s", 0.05))


def healthy_rdma(measurement: Measurement, scale: float = 1.0, device: str = "rxe_fab0") -> Result:
    """What a healthy pair of RDMA ports of 40 Gbit/s measures, times `scale`, on `device` of both nodes."""
    op, both = measurement.params.get("op"), 2 if measurement.params.get("bidirectional") else 1
    facts = {"device": device, "peer_device": device, "gid_index": 1, "peer_gid_index": 1, "active_mtu": 4096}
    facts |= {"roce_version": "RoCE v2", "peer_roce_version": "RoCE v2"}
    facts |= {"link_layer": "Ethernet", "peer_link_layer": "Ethernet", "peer_active_mtu": 4096}
    metric, value, unit = {
        "rdma-first-light": ("rdma_pingpong_us", 6.0, "us"),
        "rdma-ucx": ("ucx_latency_us", 2.2, "us"),
        "rdma-latency": (f"rdma_{op}_latency_us", 2.0, "us"),
        "rdma-bandwidth": (
            f"rdma_{op}_{'bidirectional' if both == 2 else 'bandwidth'}_gbps",
            38.5 * both * scale,
            "Gbit/s",
        ),
    }[measurement.kind]
    again = Sample(metric="rdma_retransmits", value=0, unit="count")
    return result(measurement, [Sample(metric=metric, value=value, unit=unit), again], facts=facts)


def with_facts(result: Result, **facts: Any) -> Result:
    """The result with other facts, as its node would have printed them."""
    assert not isinstance(result.facts, dict)
    return Result.model_validate({**dict(result), "facts": {**result.facts.model_dump(), **facts}})


def with_value(measurement: Measurement, value: float) -> Result:
    """A transport measurement with samples around another value."""
    metric, unit = {
        "tcp-bandwidth": ("tcp_bandwidth_gbps", "Gbit/s"),
        "tcp-latency": ("tcp_rtt_us", "us"),
        "path-mtu": ("path_mtu_bytes", "bytes"),
    }[measurement.kind]
    if measurement.kind == "path-mtu":
        return result(measurement, [Sample(metric=metric, value=value, unit=unit)])
    return result(measurement, around(value, 12, unit, metric))


def results_of(plan: Plan, spoil: Callable[[Measurement], Result | None] | None = None, **kwargs: Any) -> list[Result]:
    """Healthy results of the whole plan; `spoil` returns a measurement's other result, or None to leave it healthy."""
    return [(spoil(m) if spoil else None) or healthy(m, **kwargs) for m in plan.measurements]


def judged_by(
    topology: Topology, plan: Plan, results: Iterable[Result], profile: Profile | None, waivers: Iterable[Waiver] = ()
) -> VerdictDoc:
    """By an acceptance profile."""
    return verdict_of(topology, plan, results, waivers, profile=profile)


def verdict_of(
    topology: Topology,
    plan: Plan,
    results: Iterable[Result],
    waivers: Iterable[Waiver] = (),
    fabric: str = "tcp10",
    profile: Profile | None = None,
) -> VerdictDoc:
    info = RunInfo(
        run=plan.run,
        created="2026-11-21T10:00:00Z",
        toolkit_version="0.1.0",
        site=topology.site,
        inventory="inventories/lab",
        fabric=fabric,
        suites=plan.suites,
        command=("toolkit", "validate"),
        documents={},
    )
    return judge(info, topology, plan, load_fabric(fabric), CRITERIA, list(results), tuple(waivers), profile)


def criterion(verdict: VerdictDoc, id_: str) -> Any:
    return next(c for c in verdict.criteria if c.id == id_)


LAB = lab()
PLAN = plan_of(LAB)
REAL = hardware()
GEN3 = {"gt_s": 8.0, "lanes": 16}
LINK = {"link": GEN3, "card": GEN3, "slot": GEN3, "numa": 0}
NIC = {"what": "nic", "interface": "fab0", "address": "0000:3b:00.0", **LINK}
GPU = {"what": "gpu", "address": "0000:18:00.0", **LINK}
REAL_PCI = [NIC, GPU]
REAL_FACTS = {"virt": "none", "lab": "", "pci": REAL_PCI}


def spoil(kind, pick, value):
    """Measurements of `kind` of which `pick(source, destination)` holds get another value."""

    def change(m):
        if m.kind == kind and pick(m.endpoints[0].node, m.endpoints[1].node):
            return with_value(m, value)
        return None

    return change


def judged(change, topology=LAB, plan=PLAN, waivers=(), **kwargs):
    return verdict_of(topology, plan, results_of(plan, change, **kwargs), waivers)


def busy(where: str = "host", **shares: float) -> tuple[Denied, ...]:
    """A lab's host that lost 23 % of its time, unless said otherwise."""
    host = Denied(where="host", seconds=4, cpus=2, steal=0.0)
    mine = Denied(where=where, seconds=4, cpus=2, **(shares or {"steal": 0.23}))
    return (mine,) if where == "host" else (mine, host)


def scaled(m):
    """Training as real hardware does it: the lab's ranks share cores, these do not."""
    if m.kind != "training-short":
        return None
    rate = {"1": 500, "intra": 970, "inter": 1900}[m.params["label"]]
    return result(m, around(rate, 100, "images/s", "images_per_s", 0.02))


def real_results(plan, facts=None, spoil=scaled):
    return results_of(plan, spoil, link_gbps=9.9 / 0.985 * 0.99, facts={**REAL_FACTS, **(facts or {})})


def waive_all(verdict):
    day = datetime.date(2026, 11, 1)
    return [
        Waiver(criterion=c.id, who="A. Person", when=day, why="known", expires=datetime.date(2026, 12, 31))
        for c in verdict.criteria
        if c.verdict not in ("pass", "not-applicable")
    ]
