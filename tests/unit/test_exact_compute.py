"""Exact arithmetic: taken for real, refused where it does not add up; one wrong turn of a processor fails its node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import criterion, hardware, lab, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.compute import exact_compute_probe
from validation.measures.compute.exact import reference
from validation.model import Sample, Topology
from validation.probes.asked import make

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/exact-compute.json").read_text())
WRONG = "0" * 64


def values(doc: Any, params: Any) -> list[float]:
    samples, _ = parse("exact-compute", doc, params)
    return [sample.value for sample in samples]


def test_every_processor_here_computes_what_was_recorded_elsewhere() -> None:
    doc = exact_compute_probe.probe(make(exact_compute_probe.Asked, {"seconds": 0.01}))
    assert doc["error"] is None
    assert set(values(doc, {"seconds": 0.01})) == {0.0}
    assert values(RECORDED["document"], RECORDED["params"]) == [0.0, 0.0]


def test_a_processor_that_errs_once_is_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right, taken = reference(), []

    def errs() -> str:
        taken.append(None)
        return WRONG if len(taken) == 2 else right

    monkeypatch.setattr(exact_compute_probe, "turn", errs)
    doc = exact_compute_probe.probe(exact_compute_probe.Asked(seconds=0.05))
    samples, facts = parse("exact-compute", doc, {"seconds": 0.05})
    assert {sample.value for sample in samples} == {1.0}  # each processor has its own count of turns
    assert isinstance(facts, dict)
    assert len(facts["wrong_processors"]) == facts["cpus"]


def changed(change: Callable[[Any], object]) -> dict[str, Any]:
    report = json.loads(RECORDED["document"]["stdout"])
    change(report)
    return {**RECORDED["document"], "stdout": json.dumps(report)}


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["processors"].pop(),
        lambda r: r["processors"][0].update(cpu=r["processors"][1]["cpu"]),
        lambda r: r["processors"][0].update(turns=0, digests={}),
        lambda r: r["processors"][0].update(turns=1),
        lambda r: r["processors"][0]["digests"].update({WRONG: 0}),
        lambda r: r["processors"][0].update(turns=1, digests={"x": 1}),
        lambda r: r.update(seconds=0.1),
        lambda r: r.update(cpus=1, processors=r["processors"][:1]),
        lambda r: r.pop("processors"),
    ],
)
def test_what_does_not_add_up_is_refused(change: Callable[[Any], object]) -> None:
    with pytest.raises(ParseError):
        parse("exact-compute", changed(change), RECORDED["params"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "verdict"), [(0, "pass"), (1, "fail")])
@pytest.mark.parametrize("topology", [lab(("gpu1",)), hardware(("gpu1",))], ids=["lab", "hardware"])
def test_one_wrong_turn_fails_on_virtual_nodes_too(topology: Topology, wrong: int, verdict: str) -> None:
    plan = plan_of(topology, ("compute",))
    (mine,) = (m for m in plan.measurements if m.kind == "exact-compute")
    assert mine.params == {"seconds": 2.0 if topology.virtual else 10.0}
    counts = [Sample(metric="wrong_digests", value=value, unit="count") for value in (0, wrong, 0)]
    facts = {"cpus": 3, "turns": 99, "wrong_processors": ["1"] if wrong else []}
    found = criterion(verdict_of(topology, plan, [result(mine, counts, facts=facts)]), "co.exact")
    assert found.verdict == verdict
    assert ("processors 1" in found.reason) == bool(wrong)
