"""What is measured once more, with whom, how often, and within which budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.local_launcher import LocalLauncher, execute
from tests.support.run_case import Quiet, only, plan, topology
from tests.support.site import (
    CRITERIA,
    LAB,
    PLAN,
    REAL_FACTS,
    busy,
    hardware,
    plan_of,
    result,
    results_of,
    spoil,
    with_value,
)
from validation.judging.case import make_case
from validation.model import Measurement, Plan, Result, Topology
from validation.model.load import read_results
from validation.rules.fabric import load_fabric
from validation.verdict.next_attempts import BUDGET_LEAST_S, MAX_ATTEMPTS, PER_PORT, again, budget_s, on_nodes

pytestmark = pytest.mark.computes

TCP10 = load_fabric("tcp10")
Take = Callable[[Measurement, int], Result | None]


def asked(
    results: Sequence[Result], topo: Topology = LAB, of: Plan = PLAN, suite: str = "transport"
) -> list[list[str]]:
    return again(make_case(topo, of, TCP10, CRITERIA, results), suite)


def until_done(first: Sequence[Result], take: Take, topo: Topology = LAB, of: Plan = PLAN) -> list[Result]:
    """As execution does: take what is asked for, until nothing is."""
    results = list(first)
    for _ in range(100):
        rounds = asked(results, topo, of)
        if not rounds:
            return results
        for id_ in (id_ for ids in rounds for id_ in ids):
            attempt = 1 + sum(r.measurement == id_ for r in results)
            found = take(of.measurement(id_), attempt)
            results.append(found.model_copy(update={"attempt": attempt}))
    raise AssertionError("it never ends")


def slow(*nodes: str, value: float = 0.1) -> Callable[[Measurement], Result | None]:
    return spoil("tcp-bandwidth", lambda a, b: bool({a, b} & set(nodes)), value)


def test_what_passed_is_not_measured_again() -> None:
    assert asked(results_of(PLAN)) == []


def test_a_suspect_is_measured_again_and_then_it_is_enough() -> None:
    sick = slow("gpu2")
    rounds = asked(results_of(PLAN, sick))
    assert sorted(id_ for ids in rounds for id_ in ids) == sorted(
        m.id for m in PLAN.measurements if m.kind == "tcp-bandwidth" and "gpu2" in m.nodes
    )
    assert all(len(ids) == 1 for ids in rounds)  # in a lab nothing runs beside it
    done = until_done(results_of(PLAN, sick), lambda m, n: sick(m))
    assert max(r.attempt for r in done) == 2


def test_suspects_are_measured_against_partners_known_to_be_good_first() -> None:
    names = [f"gpu{i}" for i in range(1, 8)]
    site = hardware(("head", *names))
    of = plan_of(site, ("preflight", "transport"))
    sick = spoil("tcp-bandwidth", lambda a, b: bool({a, b} & {"gpu2", "gpu3"}), 1.0)
    rounds = asked(results_of(of, sick, link_gbps=9.9, facts=REAL_FACTS), site, of)
    chosen = [of.measurement(id_) for ids in rounds for id_ in ids]
    assert not any({"gpu2", "gpu3"} == set(m.nodes) for m in chosen)
    for port in ("gpu2", "gpu3"):
        assert sum(m.nodes[0] == port for m in chosen) == sum(m.nodes[1] == port for m in chosen) == PER_PORT
    for ids in rounds:  # elsewhere at the same time, each node in one of them
        nodes = [node for id_ in ids for node in of.measurement(id_).nodes]
        assert len(nodes) == len(set(nodes))
    assert any(len(ids) == 2 for ids in rounds)


def test_what_straddles_its_bound_is_measured_until_it_does_not_or_enough_is_enough() -> None:
    def wide(m: Measurement) -> Result | None:
        if m.id != "tcp-bandwidth.gpu1-fab0.gpu2-fab0":
            return None
        narrow = with_value(m, 0.94)
        rates = [s for s in narrow.samples if s.metric == "tcp_bandwidth_gbps"]
        values = [0.80, 1.05] * (len(rates) // 2)
        wider = [s.model_copy(update={"value": value}) for s, value in zip(rates, values, strict=True)]
        others = [s for s in narrow.samples if s not in rates]
        return narrow.model_copy(update={"samples": (*wider, *others)})

    assert asked(results_of(PLAN, wide)) == [["tcp-bandwidth.gpu1-fab0.gpu2-fab0"]]
    done = until_done(results_of(PLAN, wide), lambda m, n: wide(m))
    assert sum(r.measurement == "tcp-bandwidth.gpu1-fab0.gpu2-fab0" for r in done) == MAX_ATTEMPTS


def test_on_a_host_that_stays_busy_the_budget_ends_it() -> None:
    def held(m: Measurement, attempt: int = 1) -> Result | None:
        if m.kind != "tcp-bandwidth":
            return None
        return with_value(m, 0.8).model_copy(update={"denied": busy()})

    done = until_done(results_of(PLAN, held), held)
    further = sum(PLAN.measurement(r.measurement).estimated_s for r in done if r.attempt > 1)
    mine = [m for m in PLAN.measurements if m.suite == "transport"]
    assert 0 < further <= budget_s(mine, PLAN.rounds)
    assert budget_s(mine, PLAN.rounds) >= BUDGET_LEAST_S


def test_a_timeout_on_a_busy_machine_is_tried_again_and_one_on_a_quiet_one_is_not() -> None:
    id_ = "tcp-bandwidth.gpu1-fab0.gpu2-fab0"
    late = result(PLAN.measurement(id_), status="timeout", error="did not end")
    others = [r for r in results_of(PLAN) if r.measurement != id_]
    assert asked([*others, late]) == []
    assert asked([*others, late.model_copy(update={"denied": busy()})]) == [[id_]]


def test_another_suite_and_what_virtual_parts_cannot_show_are_left_alone() -> None:
    assert asked(results_of(PLAN, slow("gpu2")), suite="training") == []
    emulated = LAB.model_copy(
        update={
            "lab_link": LAB.lab_link.model_copy(update={"emulated": True}) if LAB.lab_link else None,
            "nodes": tuple(n.model_copy(update={"virtual": "qemu", "emulated": True}) for n in LAB.nodes),
        }
    )
    assert asked(results_of(PLAN, slow("gpu2", value=0.3)), emulated) == []


def test_of_a_resumed_run_only_nodes_that_were_reached_take_part() -> None:
    case = make_case(LAB, PLAN, TCP10, CRITERIA, results_of(PLAN, slow("gpu2")))
    rounds = on_nodes(again(case, "transport"), case, {"gpu1", "gpu2"})
    assert {frozenset(PLAN.measurement(id_).nodes) for ids in rounds for id_ in ids} == {frozenset({"gpu1", "gpu2"})}


# --- execution ----------------------------------------------------------------------------------------------------


def run(folder: Path, ids: Sequence[str], want: Callable[[str, int], Sequence[Sequence[str]]]) -> Quiet:
    """`want(suite, lines so far)` is what is asked for."""
    topo = topology(2)
    calls: list[tuple[str, int]] = []

    def wanted(suite: str, results: Sequence[Result]) -> Sequence[Sequence[str]]:
        calls.append((suite, len(results)))
        return want(suite, len(results))

    quiet = execute(folder, only(plan(topo, "preflight"), *ids), topo, LocalLauncher(), again=wanted)
    quiet.lines.append(f"calls {calls}")
    return quiet


def test_further_attempts_are_further_lines_when_their_suite_is_through(tmp_path: Path) -> None:
    path, facts = "path-mtu.gpu1-lo.gpu2-lo", "facts.gpu1"
    quiet = run(tmp_path, (path, facts), lambda suite, lines: [[path]] if lines < 4 else [])
    results, _ = read_results(tmp_path / "results.jsonl", "test")
    assert [(r.measurement, r.attempt) for r in results] == [(path, 1), (facts, 1), (path, 2), (path, 3)]
    assert quiet.lines[1:] == [
        f"again {path}",
        f"again {path}",
        "calls [('preflight', 2), ('preflight', 3), ('preflight', 4)]",
    ]


def test_a_resumed_run_counts_the_attempts_of_before(tmp_path: Path) -> None:
    path = "path-mtu.gpu1-lo.gpu2-lo"
    run(tmp_path, (path,), lambda suite, lines: [[path]] if lines < 2 else [])
    topo, seen = topology(2), []

    def wanted(suite: str, results: Sequence[Result]) -> Sequence[Sequence[str]]:
        seen.append([r.attempt for r in results])
        return []

    execute(tmp_path, only(plan(topo, "preflight"), path), topo, done={path}, again=wanted)
    assert seen == [[1, 2]]
