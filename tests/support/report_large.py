"""Large run directories made from model objects: many nodes with many metrics each. All numbers are invented."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.support.raw_case import keep
from tests.support.report_fixture import RUN, TOOLS, _facts, _samples, topology
from tests.support.report_fixture import plan as usual
from tests.support.site import provenance, result, write_run
from validation.kinds.record import names
from validation.model import Measurement, Plan, Result, Sample, Topology

KIND = "memory-bandwidth"


def large(nodes: int) -> Topology:
    return topology(True, [f"gpu{i:04d}" for i in range(nodes)], site="large", first=1, port={"prefix": 16})


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


def planned(topology: Topology, metrics: int, each: int = 1) -> Plan:
    """The usual plan, and measurements of `each` metrics on every node."""
    plan = usual(topology)
    numbers = [f"{i:03d}" for i in range(metrics)]
    blocks = [numbers[at : at + each] for at in range(0, metrics, each)]
    more = tuple(
        Measurement(
            id=f"{KIND}.{block[0]}.{node.name}",
            suite="compute",
            kind=KIND,
            nodes=(node.name,),
            params={"metrics": tuple(f"metric_{name}" for name in block)},
            criteria=tuple(f"gn.m{name}" for name in block),
            estimated_s=1,
            timeout_s=10,
        )
        for block in blocks
        for node in topology.nodes
    )
    rounds = tuple(
        tuple(m.id for m in more[at : at + len(topology.nodes)]) for at in range(0, len(more), len(topology.nodes))
    )
    suites = (*plan.suites, "compute") if metrics else plan.suites
    return plan.model_copy(
        update={"measurements": plan.measurements + more, "rounds": plan.rounds + rounds, "suites": suites}
    )


def made(run_dir: Path, m: Measurement, index: int, slow: str, raw: bool = True) -> Result:
    if m.kind == KIND:
        sick = slow in m.nodes
        base = {name: 90.0 if sick and name.endswith("0") else 120.0 + index % 13 for name in names(m, "metrics")}
        samples = tuple(Sample(metric=k, value=v + i * 0.1, unit="GB/s") for k, v in base.items() for i in range(3))
    else:
        samples = _samples(m, slow, virtual=True)
    tool, version = TOOLS.get(m.kind, ("generated", "1.0"))
    at = f"2026-11-21T{11 + index // 3600 % 12:02d}:{index // 60 % 60:02d}:{index % 60:02d}Z"
    return result(
        m,
        samples,
        run=RUN,
        facts=_facts(m.nodes[0], True) if m.kind == "facts" else {},
        provenance=provenance(
            m.nodes,
            devices=tuple(str(e) for e in m.endpoints),
            tool=tool,
            tool_version=version,
            command=(tool.split()[0], "--metric", *(names(m, "metrics") or (m.kind,)), "--json"),
            started=at,
            ended=at,
            raw=keep(run_dir, m, {"out": f"output of {m.id}\n"}) if raw else (),
        ),
    )


def make_large_run(run_dir: Path, nodes: int, metrics: int) -> Path:
    """A run of so many nodes with so many metrics each, one result per node and metric.

    The second node is slow in the fabric and in every tenth metric; the last measurement has no result.
    """
    topology = large(nodes)
    plan = planned(topology, metrics)
    results = [made(run_dir, m, i, topology.nodes[1].name) for i, m in enumerate(plan.measurements[:-1])]
    more = {"generated.yml": _criteria_file(metrics)} if metrics else {}
    return write_run(run_dir, topology, plan, results, criteria=more)


def in_memory(run_dir: Path, nodes: int, metrics: int, each: int) -> tuple[list[Result], str]:
    """As `make_large_run`, without raw logs: the documents of a run, its results, and the text of results.jsonl."""
    topology = large(nodes)
    plan = planned(topology, metrics, each)
    slow = topology.nodes[1].name
    results = [made(run_dir, m, i, slow, raw=False) for i, m in enumerate(plan.measurements[:-1])]
    more = {"generated.yml": _criteria_file(metrics)} if metrics else {}
    write_run(run_dir, topology, plan, results, criteria=more, judged=False)
    return results, (run_dir / "results.jsonl").read_text()
