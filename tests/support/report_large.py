"""Large run directories made from model objects: many nodes with many metrics each. All numbers are invented."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import yaml

from tests.support.raw_case import keep
from tests.support.report_fixture import RUN, TOOLS, _facts, _samples, topology
from tests.support.report_fixture import plan as usual
from tests.support.site import provenance, result, write_run
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


def planned(topology: Topology, metrics: int, each: int = 1, alone: bool = False) -> Plan:
    """The usual plan, and measurements of `each` metrics on every node; these `alone`."""
    plan = usual(topology)
    if alone:
        plan = plan.model_copy(update={"measurements": (), "rounds": (), "suites": ()})
    numbers = [f"{i:03d}" for i in range(metrics)]
    blocks = [numbers[at : at + each] for at in range(0, metrics, each)]
    more = tuple(
        Measurement(
            id=f"{KIND}.{block[0]}.{node.name}",
            suite="compute",
            kind=KIND,
            nodes=(node.name,),
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


def made(run_dir: Path, m: Measurement, index: int, slow: Collection[str], raw: bool = True, count: int = 3) -> Result:
    metrics = tuple(id_.replace("gn.m", "metric_") for id_ in m.criteria) if m.kind == KIND else ()
    if m.kind == KIND:
        sick = m.nodes[0] in slow
        base = {name: 90.0 if sick and name.endswith("0") else 120.0 + index % 13 for name in metrics}
        samples = tuple(Sample(metric=k, value=v + i * 0.1, unit="GB/s") for k, v in base.items() for i in range(count))
    else:
        samples = _samples(m, next(iter(slow), ""), virtual=True)
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
            command=(tool.split()[0], "--metric", *(metrics[:10] or (m.kind,)), "--json"),
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
    results = [made(run_dir, m, i, (topology.nodes[1].name,)) for i, m in enumerate(plan.measurements[:-1])]
    more = {"generated.yml": _criteria_file(metrics)} if metrics else {}
    return write_run(run_dir, topology, plan, results, criteria=more)


def streamed(
    run_dir: Path, nodes: int, metrics: int, each: int, alone: bool, slow: int, count: int
) -> Iterator[tuple[Result, str]]:
    """As `make_large_run`, without raw logs and with so many slow nodes: the documents of a run are written, and one
    result after another is given, with its line of results.jsonl.
    """
    topology = large(nodes)
    plan = planned(topology, metrics, each, alone)
    odd = [topology.nodes[1 + at * (nodes // slow)].name for at in range(slow)]
    more = {"generated.yml": _criteria_file(metrics)} if metrics else {}
    write_run(run_dir, topology, plan, [], criteria=more, judged=False)
    with (run_dir / "results.jsonl").open("w") as file:
        for at, measurement in enumerate(plan.measurements[:-1]):
            result = made(run_dir, measurement, at, odd, raw=False, count=count)
            line = result.model_dump_json() + "\n"
            file.write(line)
            yield result, line
