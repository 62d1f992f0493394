"""TCP over InfiniBand (IPoIB): measured between all ports and reported, and judged by nobody's figure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.site import criterion, hardware, healthy, plan_of, verdict_of
from validation.measures.fabric.pairs_figures import matrices
from validation.model import Measurement, Plan
from validation.report.documents import RunDocuments

TOPOLOGY = hardware(("gpu1", "gpu2", "gpu3"))


def planned(fabric: str) -> Plan:
    plan = plan_of(TOPOLOGY, ("transport",), fabric)
    kept = tuple(m for m in plan.measurements if m.kind == "tcp-bandwidth")
    return plan.model_copy(update={"measurements": kept, "rounds": (tuple(m.id for m in kept),)})


def test_every_ordered_pair_of_infiniband_ports_is_measured_and_reported() -> None:
    plan = planned("ib-edr")
    assert len(plan.measurements) == 6
    assert {m.criteria for m in plan.measurements} == {("tr.ipoib",)}
    assert {m.params["streams"] for m in plan.measurements} == {8}

    def link(m: Measurement) -> float:
        return 20.0 if m.nodes == ("gpu1", "gpu2") else 60.0  # a slow pair fails nothing: no figure says so

    found = criterion(
        verdict_of(TOPOLOGY, plan, [healthy(m, link(m)) for m in plan.measurements], fabric="ib-edr"), "tr.ipoib"
    )
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    values = sorted(j.value for j in found.judgements)
    assert values[0] == pytest.approx(0.985 * 20, rel=0.01)
    assert values[-1] == pytest.approx(0.985 * 60, rel=0.01)


def test_it_is_not_measured_on_ethernet_and_ethernets_figure_not_on_infiniband() -> None:
    for fabric, mine in (("roce100", "tr.tcpbw"), ("ib-edr", "tr.ipoib")):
        plan = planned(fabric)
        verdict = verdict_of(TOPOLOGY, plan, [healthy(m, 95.0) for m in plan.measurements], fabric=fabric)
        applies = [id_ for id_ in ("tr.tcpbw", "tr.ipoib") if criterion(verdict, id_).reason_code != "not-applicable"]
        assert applies == [mine]


def test_its_matrix_shows_what_was_measured_as_ethernets_does() -> None:
    hatched = {}
    for fabric, title in (("ib-edr", "TCP bandwidth over InfiniBand"), ("roce100", "TCP bandwidth")):
        plan = planned(fabric)
        verdict = verdict_of(TOPOLOGY, plan, [healthy(m, 95.0) for m in plan.measurements], fabric=fabric)
        documents: Any = type("Documents", (RunDocuments,), {"__init__": lambda self: None, "latest": {}})()
        for name, value in (("topology", TOPOLOGY), ("plan", plan), ("verdict", verdict)):
            object.__setattr__(documents, name, value)
        [matrix] = matrices(documents)
        assert matrix.caption.startswith(f"{title} in ")
        assert (matrix.measured, matrix.pairs) == (6, 6)
        hatched[fabric] = matrix.figure.count("-hatch)")
    assert hatched["ib-edr"] == hatched["roce100"], "hatched cells are read as not measured"
