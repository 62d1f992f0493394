"""A plan in a few lines says what the plan of every measurement says, and what it predicts follows from that."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from tests.support.site import ALL, CRITERIA, hardware, lab
from toolkit.progress import duration
from toolkit.verdict_text import print_outline
from validation.model import Plan, Topology
from validation.plan.outline import PROBE_CPU_S, RECORD_S, Outline, outline, planned
from validation.plan.suites import make_plan, plan_rounds
from validation.rules.fabric import load_fabric


def both(topology: Topology, fabric: str, suites=ALL, cores: int = 2) -> tuple[Outline, Plan]:
    profile = load_fabric(fabric)
    return (
        outline(fabric, topology, plan_rounds(topology, profile, CRITERIA, suites), cores),
        make_plan("r", topology, profile, CRITERIA, suites),
    )


@pytest.mark.parametrize(
    ("topology", "fabric"),
    [
        (lab(), "tcp10"),
        (hardware(), "roce40"),
        (hardware([f"gpu{i}" for i in range(70)]), "tcp10"),
        (lab(("gpu1", "gpu2", "gpu3"), emulated_gpus=2), "roce40"),
    ],
)
def test_it_counts_what_the_plan_holds(topology, fabric):
    found, plan = both(topology, fabric)
    assert found.measurements == len(plan.measurements)
    assert found.rounds == len(plan.rounds)
    assert found.measuring_s == pytest.approx(plan.estimated_s, abs=1)
    assert found.coverage == plan.coverage
    assert found.left_out == plan.left_out
    for step in found.steps:
        assert step.measurements == sum(m.kind == step.kind and m.suite == step.suite for m in plan.measurements)
    assert outline(fabric, topology, planned(plan), 2) == found


def test_the_prediction_has_the_measuring_and_the_controllers_own_work():
    found, _ = both(lab(), "tcp10")
    (bandwidth,) = [step for step in found.steps if step.kind == "tcp-bandwidth"]
    assert (bandwidth.rounds, bandwidth.measurements, bandwidth.probes) == (6, 12, 24)
    assert bandwidth.measuring_s == pytest.approx(6 * 3.2)
    assert bandwidth.controller_s == pytest.approx(24 * PROBE_CPU_S / 2 + 12 * RECORD_S, abs=0.06)
    many, _ = both(lab(), "tcp10", cores=64)
    assert many.predicted_s < found.predicted_s
    assert many.measuring_s == found.measuring_s


def test_suites_where_a_round_holds_two_kinds_are_counted_by_kind():
    found, plan = both(hardware(emulated_gpus=0), "tcp10", ("burn-in",))
    kinds = {m.kind for m in plan.measurements}
    assert "soak-fabric" in kinds
    assert {step.kind for step in found.steps} == kinds
    assert found.measurements == len(plan.measurements)
    assert found.rounds == len(plan.rounds)
    assert found.measuring_s == pytest.approx(plan.estimated_s, abs=1)


def test_what_is_printed_names_rounds_minutes_coverage_and_that_it_is_no_verdict():
    found, _ = both(hardware([f"gpu{i}" for i in range(70)]), "tcp10")
    out = io.StringIO()
    print_outline(Console(file=out, width=300), found, duration)
    text = out.getvalue()
    assert "70 nodes, 70 fabric ports" in text
    assert "covered: fabric ports, sampled: 70 of 70 ports, 280 of 2415 pairs" in text
    assert "chance that a single bad link escapes: 0 % between a port and its leaf switch, 88.4 %" in text
    assert f"predicted {duration(found.predicted_s)} without repeats" in text
    assert "NOT a verdict" in text
    assert max(map(len, text.splitlines())) < 350  # the names of a fleet are cut


def test_a_fleet_is_outlined_without_a_measurement_of_each_pair():
    """Of 10,000 nodes the plan would be 240,000 measurements and more than a gigabyte."""
    nodes = hardware([f"gpu{i}" for i in range(2000)])
    began = time.process_time()
    found = outline("tcp10", nodes, plan_rounds(nodes, load_fabric("tcp10"), CRITERIA, ("preflight", "transport")), 2)
    assert found.measurements > 45_000
    assert time.process_time() - began < 10  # measured: below a second
