"""Run directories made from model objects, for the tests of the report: what a rehearsal in the lab leaves behind.

The numbers are invented. They are shaped like a lab's with 1 Gbit/s links; nothing here was measured.
"""

from __future__ import annotations

import datetime
import json
from itertools import permutations
from pathlib import Path

from tests.support.engine_case import REAL_PCI
from tests.support.raw_case import keep, measured
from validation.catalogue import load_criteria, read_criteria
from validation.fabric import load_fabric, read_fabric
from validation.judge import judge
from validation.model import (
    Bom,
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
)
from validation.runfiles import tied
from validation.suites import make_plan
from validation.waiver import Waiver

RUN = "2026-11-21T10-15-00Z-tcp10"
GROUPS = {"head": ("heads",), "client1": ("clients",), "gpu1": ("gpu_servers",), "gpu2": ("gpu_servers",)}
PORTS = [f"{name}/fab0" for name in GROUPS]
PAIRS = list(permutations(PORTS, 2))


def topology(virtual: bool = True) -> Topology:
    nodes = tuple(
        Node(
            name=name,
            groups=groups,
            ssh=SshTarget(host=f"10.77.0.{11 + i}"),
            ports=(Port(interface="fab0", address=f"10.78.0.{11 + i}", prefix=24, rate_gbps=1.0 if virtual else 10.0),),
            slots=2,
            bom=Bom(
                model="container" if virtual else "PowerEdge C4140",
                gpu_count=0,
                nic_model="veth" if virtual else "ConnectX-5",
                fabric_port_count=1,
            ),
            stack={"os": "debian 12", "docker": "20.10.24"},
            virtual="systemd-nspawn" if virtual else None,
        )
        for i, (name, groups) in enumerate(GROUPS.items())
    )
    return Topology(site="lab", nodes=nodes, lab_link=LabLink(rate_gbps=1.0, rtt_max_us=1000) if virtual else None)


def plan(topo: Topology) -> Plan:
    return make_plan(RUN, topo, load_fabric("tcp10"), load_criteria(), ("preflight", "transport", "training"))


def _samples(m: Measurement, slow: str | None, virtual: bool) -> tuple[Sample, ...]:
    spread = (sum(map(ord, m.id)) % 17) / 17  # the same every time, different for every pair
    sick = slow in m.nodes
    if m.kind == "tcp-bandwidth":
        rate = (0.0982 if sick else 0.985) * (1 if virtual else 10)
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
    else:
        return ()
    return tuple(Sample(metric=metric, value=v, unit=unit) for v in values)


def _facts(node: str, virtual: bool) -> dict[str, object]:
    return {
        "type": "node",
        "virt": "systemd-nspawn" if virtual else "none",
        "lab": "elastic-ai-lab" if virtual else "",
        "model": "container" if virtual else "PowerEdge C4140",
        "gpu_count": 0,
        "gpu_model": "",
        "nic_model": "veth" if virtual else "ConnectX-5",
        "fabric_ports": [
            {"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": None if virtual else 10000}
        ],
        "rdma_devices": [],
        "pci": [{"what": "nic", "interface": "fab0"}] if virtual else REAL_PCI,
        "os": "debian 12",
        "kernel": "6.1.0-28-amd64",
        "python": "3.11.2",
        "probes": "0.1.0",
        "docker": "20.10.24",
        "openmpi": "" if node == "client1" else "4.1.4",
        "torch": "1.13.1",
        "horovod": "0.28.1",
        **dict.fromkeys(("driver", "fabric_manager", "cuda", "cudnn", "nccl", "ofed", "container_toolkit", "dcgm"), ""),
        **dict.fromkeys(("slurm", "stack_release"), ""),
        **{key: [] for key in ("stand_ins", "not_applicable", "drift", "reboot_pending")},
    }


TOOLS = {
    "facts": ("facts", "0.1.0"),
    "path-mtu": ("ping", "20221126"),
    "tcp-bandwidth": ("iperf3", "3.12"),
    "tcp-latency": ("sockperf", "3.7"),
    "training-short": ("mpirun + horovod", "4.1.4 + 0.28.1"),
}


def results(
    run_dir: Path, planned: Plan, slow: str | None, dead: str | None, error: str, virtual: bool
) -> list[Result]:
    out = []
    for index, m in enumerate(planned.measurements):
        tool, version = TOOLS[m.kind]
        failed = dead in m.nodes
        result = Result.model_validate(
            dict(
                run=RUN,
                measurement=m.id,
                status="unreachable" if failed else "ok",
                error=error if failed else None,
                samples=() if failed else _samples(m, slow, virtual),
                facts=_facts(m.nodes[0], virtual) if m.kind == "facts" and not failed else {},
                provenance=Provenance(
                    nodes=m.nodes,
                    devices=tuple(str(e) for e in m.endpoints),
                    tool=tool,
                    tool_version=version,
                    command=(tool.split()[0], "-c", f"10.78.0.{11 + index % 4}", "--json"),
                    started=f"2026-11-21T10:{15 + index // 12:02d}:{index % 12 * 5:02d}Z",
                    ended=f"2026-11-21T10:{15 + index // 12:02d}:{index % 12 * 5 + 4:02d}Z",
                    duration_s=3.8,
                    raw=keep(run_dir, m, {"out": f"output of {m.id}\n"}) if failed else (),
                ),
            )
        )
        out.append(result if failed else measured(run_dir, m, result))
    return out


def _waivers(planned: Plan) -> tuple[Waiver, ...]:
    day = datetime.date(2026, 11, 20)
    return tuple(
        Waiver(
            criterion=c.id, who="A. Example", when=day, why="not part of this delivery", expires=day.replace(year=2027)
        )
        for c in load_criteria()
        if c.no_probe or c.suite not in planned.suites
    )


def make_run(
    run_dir: Path,
    slow: str | None = None,
    dead: str | None = None,
    error: str = "ssh: connect to host 10.77.0.14 port 22: No route to host",
    virtual: bool = True,
    judged: bool = True,
    cut_after: int | None = None,
    waive: bool = False,
) -> Path:
    """A run directory: clean, or with a `slow` node (fails), a `dead` one (incomplete), not `judged`, or killed after
    `cut_after` results with a torn last line. `waive` waives what is not measured, so that real hardware is accepted.
    """
    run_dir.mkdir(parents=True)
    topo = topology(virtual)
    planned = plan(topo)
    measured = results(run_dir, planned, slow, dead, error, virtual)
    info = RunInfo(
        run=RUN,
        created="2026-11-21T10:15:00Z",
        toolkit_version="0.1.0",
        site="lab",
        inventory="inventories/lab",
        fabric="tcp10",
        suites=planned.suites,
        command=("toolkit", "validate", "--fabric", "tcp10"),
        documents={},
    )
    for name, document in (("topology", topo), ("plan", planned)):
        (run_dir / f"{name}.json").write_text(document.model_dump_json(indent=2))
    lines = [r.model_dump_json() + "\n" for r in measured]
    if cut_after is not None:
        lines = [*lines[:cut_after], lines[cut_after][:40]]
    (run_dir / "results.jsonl").write_text("".join(lines))
    (run_dir / "fabric.yml").write_text(read_fabric("tcp10").text)
    (run_dir / "criteria").mkdir()
    for source in read_criteria():
        (run_dir / "criteria" / source.path.name).write_text(source.text)
    waivers = _waivers(planned) if waive else ()
    if waivers:
        listed = [w.model_dump(mode="json") for w in waivers]
        (run_dir / "waivers.yml").write_text(json.dumps({"waivers": listed}))
    info = info.model_copy(update={"documents": tied(run_dir)})
    (run_dir / "run.json").write_text(info.model_dump_json(indent=2))
    if judged:
        fabric = load_fabric("tcp10")
        document = judge(info, topo, planned, fabric, load_criteria(), measured, waivers)
        (run_dir / "verdict.json").write_text(document.model_dump_json(indent=2))
    return run_dir
