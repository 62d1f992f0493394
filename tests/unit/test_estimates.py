"""The time that is left: recorded runs, played again by a clock that is not this machine's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import PLAN, hardware, lab, plan_of
from toolkit import estimates
from validation.model import Measurement, Plan

RECORDED = sorted((Path(__file__).parents[1] / "data/durations").glob("*.json"))
SOME = PLAN.measurements[0]


def played(recorded: dict[str, Any], known: bool = True) -> list[tuple[int, float]]:
    """(measurements that are finished, predicted whole / real whole) along a recorded run."""
    of = {m["id"]: m for m in recorded["measurements"]}
    measurements = tuple(
        SOME.model_copy(update={"id": id_, "kind": m["kind"], "nodes": ("gpu1",), "estimated_s": m["estimated_s"]})
        for id_, m in of.items()
    )
    plan = PLAN.model_copy(update={"measurements": measurements, "rounds": tuple(map(tuple, recorded["rounds"]))})
    now = [0.0]
    clock = estimates.Clock(lambda: now[0], estimates.expected_s(plan, lab()) if known else None)
    clock.plan(plan, frozenset())
    took = sorted(recorded["took"], key=lambda one: one["ended_s"])
    whole = took[-1]["ended_s"]
    found, repeated = [], False
    for number, one in enumerate(took, 1):
        if one["attempt"] > 1 and not repeated:
            repeated = True
            clock.again(_rounds(plan, [other for other in took if other["attempt"] > 1]))
        now[0] = one["ended_s"]
        clock.finished(one["id"])
        found.append((number, (clock.elapsed_s + clock.left_s) / whole))
    return found


def _rounds(plan: Plan, took: list[dict[str, Any]]) -> list[list[Measurement]]:
    return [[plan.measurement(one["id"])] for one in took]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_from_the_tenth_measurement_on_the_estimate_holds_within_30_per_cent(path: Path) -> None:
    recorded = json.loads(path.read_text())
    ratios = [ratio for number, ratio in played(recorded) if number >= 10]
    assert len(ratios) > 40
    assert all(0.7 <= ratio <= 1.3 for ratio in ratios), ratios
    assert ratios[-1] == pytest.approx(1)


def test_the_plans_own_estimates_would_not_hold() -> None:
    """The first seconds, in which Python starts on each node, once made minutes of the rest."""
    worst = max(ratio for path in RECORDED for _, ratio in played(json.loads(path.read_text()), known=False))
    assert worst > 2


def test_what_begins_slowly_says_little_of_the_rest() -> None:
    now = [0.0]
    plan = plan_of(lab())
    expected = estimates.expected_s(plan, lab())
    clock = estimates.Clock(lambda: now[0], expected)
    clock.plan(plan, frozenset())
    whole = clock.left_s
    assert whole == pytest.approx(estimates.total_s(plan, expected))
    now[0] = 10.0
    for id_ in plan.rounds[0]:
        clock.finished(id_)
    assert clock.left_s < 1.5 * whole


def test_a_round_that_is_late_takes_nothing_from_those_after_it() -> None:
    now = [0.0]
    clock = estimates.Clock(lambda: now[0])
    clock.plan(PLAN, frozenset())
    later = sum(max(PLAN.measurement(id_).estimated_s for id_ in ids) for ids in PLAN.rounds[1:])
    now[0] = 10_000.0
    assert clock.left_s == pytest.approx(later)


def test_on_hardware_the_plans_estimates_stand() -> None:
    site = hardware()
    plan = plan_of(site)
    expected = estimates.expected_s(plan, site)
    for m in plan.measurements:
        assert expected[m.id] == m.estimated_s * estimates.ANYWHERE.get(m.kind, 1.0)
