"""Large run directories made from model objects: many nodes with many metrics each. All numbers are invented."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

from tests.support.report_fixture import RUN, TOOLS, _facts, _samples
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
    RawLog,
    Result,
    RunInfo,
    Sample,
    SshTarget,
    Topology,
)
from validation.suites import make_plan

KIND = "memory-bandwidth"


def _topology(nodes: int) -> Topology:
    return Topology(
        site="large",
        lab_link=LabLink(rate_gbps=1.0, rtt_max_us=1000),
        nodes=tuple(
            Node(
                name=f"gpu{i:04d}",
                groups=("gpu_servers",),
                ssh=SshTarget(host=f"10.77.{i // 250}.{1 + i % 250}"),
                ports=(Port(interface="fab0", address=f"10.78.{i // 250}.{1 + i % 250}", prefix=16, rate_gbps=1.0),),
                slots=2,
                bom=Bom(model="container", gpu_count=0, nic_model="veth", fabric_port_count=1),
                stack={"os": "debian 12", "docker": "20.10.24"},
                virtual="systemd-nspawn",
            )
            for i in range(nodes)
        ),
    )


def _criteria_file(metrics: int) -> str:
    entries = [
        {
            "id": f"gn.m{i:03d}",
            "statement": f"Generated metric {i} of every node reaches its minimum",
            "suite": "compute",
            "scope": "node",
            "metric": f"metric_{i:03d}",
            "unit": "GB/s",
            "direction": "higher",
            "kind": KIND,
            "bound": {"kind": "minimum", "value": 100.0, "words": "at least 100 GB/s"},
            "source": "generated",
            "required": False,
        }
        for i in range(metrics)
    ]
    return yaml.safe_dump({"criteria": entries}, sort_keys=False)


def _plan(topology: Topology, metrics: int) -> Plan:
    plan = make_plan(RUN, topology, load_fabric("tcp10"), load_criteria(), ("preflight", "transport", "training"))
    more = tuple(
        Measurement(
            id=f"{KIND}.{i:03d}.{node.name}",
            suite="compute",
            kind=KIND,
            nodes=(node.name,),
            params={"metric": f"metric_{i:03d}"},
            criteria=(f"gn.m{i:03d}",),
            estimated_s=1,
            timeout_s=10,
        )
        for i in range(metrics)
        for node in topology.nodes
    )
    rounds = tuple(
        tuple(m.id for m in more[at : at + len(topology.nodes)]) for at in range(0, len(more), len(topology.nodes))
    )
    suites = (*plan.suites, "compute") if metrics else plan.suites
    return plan.model_copy(
        update={"measurements": plan.measurements + more, "rounds": plan.rounds + rounds, "suites": suites}
    )


def _result(run_dir: Path, m: Measurement, index: int, slow: str) -> Result:
    log = run_dir / "raw" / m.id / f"{m.nodes[0]}.out"
    log.parent.mkdir(parents=True)
    text = f"output of {m.id}\n"
    log.write_text(text)
    if m.kind == KIND:
        metric = str(m.params["metric"])
        base = 90.0 if slow in m.nodes and metric.endswith("0") else 120.0 + index % 13
        samples = tuple(Sample(metric=metric, value=base + i * 0.1, unit="GB/s") for i in range(3))
    else:
        samples = _samples(m, slow, virtual=True)
    tool, version = TOOLS.get(m.kind, ("generated", "1.0"))
    return Result.model_validate(
        dict(
            run=RUN,
            measurement=m.id,
            status="ok",
            samples=samples,
            facts=_facts(m.nodes[0], True) if m.kind == "facts" else {},
            provenance=Provenance(
                nodes=m.nodes,
                devices=tuple(str(e) for e in m.endpoints),
                tool=tool,
                tool_version=version,
                command=(tool.split()[0], "--metric", str(m.params.get("metric", m.kind)), "--json"),
                started=f"2026-11-21T{11 + index // 3600 % 12:02d}:{index // 60 % 60:02d}:{index % 60:02d}Z",
                ended=f"2026-11-21T{11 + index // 3600 % 12:02d}:{index // 60 % 60:02d}:{index % 60:02d}Z",
                duration_s=1.0,
                raw=(RawLog(path=f"raw/{m.id}/{m.nodes[0]}.out", sha256=hashlib.sha256(text.encode()).hexdigest()),),
            ),
        )
    )


def make_large_run(run_dir: Path, nodes: int, metrics: int) -> Path:
    """A run of so many nodes with so many metrics each, one result per node and metric.

    The second node is slow in the fabric and in every tenth metric; the last measurement has no result.
    """
    run_dir.mkdir(parents=True)
    topology = _topology(nodes)
    plan = _plan(topology, metrics)
    texts = {source.path.name: source.text for source in read_criteria()}
    texts |= {"generated.yml": _criteria_file(metrics)} if metrics else {}
    (run_dir / "criteria").mkdir()
    for name, text in texts.items():
        (run_dir / "criteria" / name).write_text(text)
    slow = topology.nodes[1].name
    results = [_result(run_dir, m, i, slow) for i, m in enumerate(plan.measurements[:-1])]
    info = RunInfo(
        run=RUN,
        created="2026-11-21T10:15:00Z",
        toolkit_version="0.1.0",
        site=topology.site,
        inventory="inventories/large",
        fabric="tcp10",
        suites=plan.suites,
        command=("toolkit", "validate", "--fabric", "tcp10"),
        documents={},
    )
    for name, document in (("run", info), ("topology", topology), ("plan", plan)):
        (run_dir / f"{name}.json").write_text(document.model_dump_json(indent=2))
    with (run_dir / "results.jsonl").open("w") as file:
        file.writelines(r.model_dump_json() + "\n" for r in results)
    (run_dir / "fabric.yml").write_text(read_fabric("tcp10").text)
    verdict = judge(info, topology, plan, load_fabric("tcp10"), load_criteria(run_dir / "criteria"), results)
    (run_dir / "verdict.json").write_text(verdict.model_dump_json(indent=2))
    return run_dir
