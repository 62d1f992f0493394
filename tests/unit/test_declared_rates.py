"""Ports of a smaller declared rate than the fabric's: what falls short says so, and no other port is put down to it."""

from __future__ import annotations

from tests.support.site import CRITERIA, addressed, node, plan_of, run_info
from tests.support.truth import measured
from validation.judging.run_data import RunData
from validation.model import Finding, Port, Topology
from validation.rules.fabric import load_fabric
from validation.verdict.judge import judge

RATES = {"client1": 10.0, "gpu1": 100.0, "gpu2": 100.0, "gpu3": 100.0, "gpu4": 100.0}


def found(sick: str = "", declared: bool = True) -> dict[str, Finding]:
    """Findings of a site of these rates, of which one port may carry half of its own."""

    def port(n: int, name: str) -> Port:
        return Port(interface="fab0", address=f"10.78.0.{n}", prefix=24, rate_gbps=RATES[name] if declared else None)

    nodes = tuple(node(name, n, ports=(port(n, name),), virtual=None) for n, name in enumerate(RATES, 1))
    topology, fabric = Topology(site="customer", nodes=nodes), load_fabric("tcp100")
    plan = plan_of(topology, ("transport",), fabric.name)
    results = []
    for m in plan.measurements:
        rate = min([RATES[end.node] for end in m.endpoints if m.kind != "incast"] or [100.0])
        own = fabric.model_copy(update={"line_rate_gbps": rate})
        results.append(measured(m, own, lambda w: 0.5 if sick and f"{sick}/fab0" in w.ends else 1.0))
    said = addressed(topology, results)
    verdict = judge(RunData(run_info(topology, plan, fabric=fabric.name), topology, plan, fabric, CRITERIA, said))
    return {str(finding.about): finding for finding in verdict.findings}


def test_a_port_that_does_what_is_declared_of_it_is_no_proof_of_a_fault() -> None:
    findings = found()
    assert set(findings) == {"client1/fab0", "cluster"}
    for finding in findings.values():
        assert "the inventory declares 10 Gbit/s for client1/fab0, and tcp100 has 100" in finding.cause
        assert finding.remedy.startswith("Judge these ports by a fabric of their own rate")


def test_a_sick_port_beside_it_is_not_excused() -> None:
    findings = found("gpu2")
    assert {"client1/fab0", "gpu2/fab0"} <= set(findings)
    assert findings["gpu2/fab0"].cause == ""
    assert "declares 10" in findings["client1/fab0"].cause


def test_where_nothing_is_declared_nothing_is_excused() -> None:
    assert found(declared=False)["client1/fab0"].cause == ""
