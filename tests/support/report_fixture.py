"""Run directories made from model objects, for the tests of the report: what a rehearsal in the lab leaves behind.

The numbers are invented. They are shaped like a lab's with 1 Gbit/s links; nothing here was measured.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.support.raw_case import METRICS, NOTHING, keep, measured
from tests.support.site import (
    ALL,
    CRITERIA,
    FACTS,
    NAMES,
    REAL_FACTS,
    addressed,
    created,
    hardware,
    lab,
    plan_of,
    plugged,
    provenance,
    result,
    waiver,
    write_run,
)
from validation.model import REPORT, Bmc, Bom, Measurement, Plan, Result, Sample, Topology
from validation.report.documents import read_run
from validation.rules.waiver import Waiver

RUN = "2026-11-21T10-15-00Z-tcp10"
PORTS = [f"{name}/fab0" for name in NAMES]
PAIRS = list(permutations(PORTS, 2))


def topology(virtual: bool = True, names: Iterable[str] = NAMES, **more: Any) -> Topology:
    model, nic, rate = ("container", "veth", 1.0) if virtual else ("PowerEdge C4140", "ConnectX-5", 10.0)
    bom = Bom(model=model, gpu_count=0, nic_model=nic, fabric_port_count=1)
    declared = {"bom": bom, "slots": 2, "stack": {"os": "debian 12", "docker": "29.9.0"}, "site": "lab", **more}
    port = {"rate_gbps": rate, **more.get("port", {})}
    return (lab if virtual else hardware)(names, **{**declared, "port": port})


def plan(topo: Topology, suites: Iterable[str] = ALL, fabric: str = "tcp10", run: str = RUN) -> Plan:
    return plan_of(topo, suites, fabric, run)


def _day(m: Measurement, day: int, drift: Mapping[str, float]) -> float:
    """What a measurement's level is on another day than the first, over its level then; and what drifted since."""
    factor = next((by for begin, by in drift.items() if m.id.startswith(begin)), 1.0)
    if not day or m.kind == "path-mtu":
        return factor
    chance = random.Random(f"{day} {m.id}")
    return factor * (1 + chance.gauss(0, 0.02) if m.kind == "tcp-latency" else 1 - abs(chance.gauss(0, 0.002)))


def _samples(
    m: Measurement,
    slow: str | None,
    virtual: bool,
    lab_gbps: float = 1.0,
    day: int = 0,
    drift: Mapping[str, float] = {},
) -> tuple[Sample, ...]:
    spread = (sum(map(ord, m.id)) % 17) / 17  # the same every time, different for every pair
    sick = slow in m.nodes
    if m.kind == "tcp-bandwidth":
        rate = (0.0982 if sick else 0.985) * (lab_gbps if virtual else 10)
        values, metric, unit = (
            [rate * (1 + 0.004 * (spread - 0.1 * i)) for i in range(-1, 11)],
            "tcp_bandwidth_gbps",
            "Gbit/s",
        )
    elif m.kind == "tcp-latency":
        values, metric, unit = (
            [(55 if virtual else 28) + spread * 15 + i * 3.6 / 19 for i in range(20)],
            "tcp_rtt_us",
            "us",
        )
    elif m.kind == "path-mtu":
        values, metric, unit = [9000.0], "path_mtu_bytes", "bytes"
    elif m.kind == "training-short":
        rates = {"1": 412.0, "intra": 655.0 if virtual else 806.0, "inter": 1010.0 if virtual else 1540.0}
        rate = rates[str(m.params["label"])]
        values, metric, unit = [rate * (1 + 0.002 * ((i * 7) % 11 - 5)) for i in range(100)], "images_per_s", "images/s"
    elif m.kind in ("incast", "all-to-all"):
        values, metric, unit = [0.95 * (lab_gbps if virtual else 10)], METRICS[m.kind], "Gbit/s"
    else:
        return ()
    found = tuple(Sample(metric=metric, value=v * _day(m, day, drift), unit=unit) for v in values)
    if m.kind == "training-short" and m.params["ranks"] != 1:
        found += tuple(Sample(metric="allreduce_ratio", value=0.2, unit="ratio") for _ in values)
    return found


def _facts(node: str, virtual: bool) -> dict[str, Any]:
    port = {"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": None if virtual else 10000}
    real = {**REAL_FACTS, "model": "PowerEdge C4140", "nic_model": "ConnectX-5"}
    lab = {"lab": "elastic-ai-lab", "model": "container", "nic_model": "veth"}
    made = {"kernel": "6.1.0-28-amd64", "torch": "1.13.1", "horovod": "0.28.1", "fabric_ports": [port]}
    return {**FACTS, **made, "openmpi": "" if node == "client1" else "4.1.4", **(lab if virtual else real)}


TOOLS = {
    "cabling": ("probes", "0.1.0"),
    "bmc": ("Redfish", "1.17"),
    "facts": ("facts", "0.1.0"),
    "path-mtu": ("ping", "20221126"),
    "tcp-bandwidth": ("iperf3", "3.12"),
    "tcp-latency": ("sockperf", "3.7"),
    "incast": ("iperf3", "3.12"),
    "all-to-all": ("iperf3", "3.12"),
    "collectives": ("torch", "1.13.1"),
    "training-short": ("mpirun + horovod", "4.1.4 + 0.28.1"),
    "training-turns": ("mpirun + horovod", "4.1.4 + 0.28.1"),
    "training-long": ("mpirun + horovod", "4.1.4 + 0.28.1"),
}


def results(
    run_dir: Path,
    topo: Topology,
    planned: Plan,
    slow: str | None,
    dead: str | None,
    error: str,
    virtual: bool,
    lab_gbps: float = 1.0,
    day: int = 0,
    drift: Mapping[str, float] = {},
    made_up: bool = False,
    parts: Mapping[str, Any] = {},
    bmcs: Mapping[str, Any] = {},
) -> list[Result]:
    out = []
    for index, m in enumerate(planned.measurements):
        tool, version = TOOLS[m.kind]
        failed = dead in m.nodes
        at = f"{created(planned.run)[:11]}10:{15 + index // 12:02d}"
        made = result(
            m,
            () if failed else _samples(m, slow, virtual, lab_gbps, day, drift),
            run=planned.run,
            status="unreachable" if failed else "ok",
            error=error if failed else None,
            facts=_facts(m.nodes[0], virtual)
            | ({"constructed": True} if made_up else {})
            | ({"parts": parts[m.nodes[0]]} if m.nodes[0] in parts else {})
            if m.kind == "facts" and not failed
            else plugged({"fab0": ("leaf1", f"Eth1/{m.nodes[0]}")})
            if m.kind == "cabling" and not failed
            else {"type": "bmc", "nodes": [{**said, "node": name} for name, said in bmcs.items()]}
            if m.kind == "bmc"
            else {},
            provenance=provenance(
                m.nodes,
                devices=tuple(str(e) for e in m.endpoints),
                tool=tool,
                tool_version=version,
                command=(tool.split()[0], "-c", f"10.78.0.{11 + index % 4}", "--json"),
                started=f"{at}:{index % 12 * 5:02d}Z",
                ended=f"{at}:{index % 12 * 5 + 4:02d}Z",
                duration_s=3.8,
                raw=keep(run_dir, m, {"out": f"output of {m.id}\n", "err": "", REPORT: NOTHING}) if failed else (),
            ),
        )
        (made,) = addressed(topo, [made])
        printed = {name: dict(said) for name, said in bmcs.items()} if m.kind == "bmc" else None
        out.append(made if failed else measured(run_dir, m, made, printed))
    return out


def _waivers(planned: Plan) -> tuple[Waiver, ...]:
    words = {"who": "A. Example", "why": "not part of this delivery", "expires": datetime.date(2027, 11, 20)}
    served = {id_ for m in planned.measurements for id_ in m.criteria}
    here = [c for c in CRITERIA if c.applies is None or c.kind == "switches"]  # the fixture's fabric is Ethernet
    left = [c.id for c in CRITERIA if c.no_probe or (c.id not in served and c in here)]
    return tuple(waiver(id_, **words, when=datetime.date(2026, 11, 20)) for id_ in left)


def make_run(
    run_dir: Path,
    slow: str | None = None,
    dead: str | None = None,
    error: str = "ssh: connect to host 10.77.0.14 port 22: No route to host",
    virtual: bool = True,
    judged: bool = True,
    cut_after: int | None = None,
    waive: bool = False,
    lab_gbps: float = 1.0,
    names: Iterable[str] = NAMES,
    site: str = "lab",
    day: int = 0,
    drift: Mapping[str, float] = {},
    made_up: bool = False,
    parts: Mapping[str, Any] = {},
    bmcs: Mapping[str, Any] = {},
    **planned_as: Any,
) -> Path:
    """A run directory: clean, or with a `slow` node (fails), a `dead` one (incomplete), not `judged`, or killed
    after `cut_after` results with a torn last line. `waive` waives what is not measured, so that profile training
    accepts real hardware. `made_up`: the facts of the nodes say that they were constructed. `parts`: node -> its parts
    as it shows them; `bmcs`: node -> what its BMC says. `lab_gbps` is what the lab's links are shaped to; on another
    `day` each figure has another level, and by `drift` (begin of a measurement's name -> factor) it left its own.
    `planned_as` suites, fabric and the run's name, as of `plan`.
    """
    topo = topology(virtual, names, site=site)
    if topo.lab_link is not None:
        topo = topo.model_copy(update={"lab_link": topo.lab_link.model_copy(update={"rate_gbps": lab_gbps})})
    if bmcs:
        declared = [n.model_copy(update={"bmc": Bmc(address="127.0.0.1", user="acceptance")}) for n in topo.nodes]
        topo = topo.model_copy(update={"nodes": tuple(declared)})
    planned = plan(topo, **planned_as)
    measured = results(run_dir, topo, planned, slow, dead, error, virtual, lab_gbps, day, drift, made_up, parts, bmcs)
    waivers, profile = (_waivers(planned), "training") if waive else ((), "")
    return write_run(run_dir, topo, planned, measured, waivers, judged, cut_after, profile=profile)


RUNS: dict[str, dict[str, Any]] = {
    "clean": {},
    "slow": {"slow": "gpu2"},
    "dead": {"dead": "gpu2", "error": 'ssh: \x1b[31mNo route to host\x00 to <host> & "port" \u2028'},
    "real": {"virtual": False, "waive": True},
    "unjudged": {"judged": False, "cut_after": 20},
    "unstarted": {"judged": False, "cut_after": 0},
}


def planned_on(run: Path, node: str) -> tuple[int, int]:
    """Measurements of a run's plan that need the node, and all."""
    measurements = read_run(run).plan.measurements
    return sum(node in m.nodes for m in measurements), len(measurements)


class MadeRuns(dict[str, Path]):
    """A run directory below `base` for each of RUNS, made when it is asked for; not to be changed."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def __missing__(self, name: str) -> Path:
        self[name] = make_run(self.base / name, **RUNS[name])
        return self[name]
