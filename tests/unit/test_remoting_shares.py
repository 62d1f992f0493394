"""Tenants that train on parts of one GPU at the same time: what they did together, and what it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_shares_documents import SHARES, shares_document, shares_result
from tests.support.remote_train_documents import RATE
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.plan import WHOLES
from validation.measures.remoting.shares import SharesFacts
from validation.model import Judgement, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))


def of_tenant(turn: int, part: str, /, **changes: Any) -> Callable[[int, str, int, dict[str, Any]], object]:
    """Changes one tenant's report."""
    return lambda *who: who[3].update(changes) if who[:2] == (turn, part) else None


def test_every_way_to_cut_a_gpu_is_planned_on_every_server() -> None:
    mine = [m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-shares"]
    assert [(m.params["server"], m.params["parts"]) for m in mine] == [
        (server, whole) for server in ("gpu1", "gpu2") for whole in WHOLES
    ]


def test_what_tenants_do_together_is_counted_while_all_of_them_train() -> None:
    samples, facts = parse("remoting-shares", shares_document(ratio=0.9), SHARES)
    assert isinstance(facts, SharesFacts)
    assert samples[0].value == 0
    assert [s.value for s in samples if s.metric == "whole_images_per_s"] == pytest.approx([RATE] * 2, rel=0.01)
    together = [s.value for s in samples if s.metric == "together_images_per_s"]
    assert together == pytest.approx([0.9 * RATE] * 2, rel=0.01)


def test_what_one_does_while_the_other_does_not_is_not_counted() -> None:
    """A tenant that began late had the whole GPU for a while, and the other one too."""

    def late(turn: int, part: str, number: int, made: dict[str, Any]) -> None:
        if part == "5/20":
            made["began_s"] += 0.2 * sum(made["step_s"])

    _, facts = parse("remoting-shares", shares_document(change=late), SHARES)
    assert isinstance(facts, SharesFacts)
    assert facts.turns[0].together_images_per_s == pytest.approx(RATE, rel=0.02)
    whole_time = 11 * SHARES["batch"] / (RATE / 2)
    assert facts.turns[0].together_s < 0.8 * whole_time


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"began_s": 9000.0}, "all trained at the same time for 0 s of .*: nothing was shared"),
        ({"began_s": None}, "its begin: None is not a number"),
        ({"steps": 11}, "12 times and 12 losses of 11 steps"),
        ({"seed": 2}, "seed is not that of the first tenant"),
        ({"hidden": 33}, "hidden is not that"),
        ({"devices": [{"name": "V100", "uuid": "GPU-1"}]}, "another GPU"),
        ({"losses": [1.0] * 12}, "its loss never changes"),
        ({"images_per_s": 1.0}, "do not follow from its steps"),
        ({"infer": True}, "no training by"),
    ],
)
def test_what_is_no_such_tenant_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-shares", shares_document(change=of_tenant(2, "5/20", **changes)), SHARES)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("== turn 2 of 2: 5/20 1\n", "== turn 2 of 2: 3/4 0\n", "is there twice"),
        ("== turn 2 of 2: 5/20 1\n", "== turn 2 of 2: 3/4 1\n", "5 of 6 planned programs"),
        ("== turn 2 of 2: 5/20 1\n", "", "no whole JSON document"),
        ("of 2", "of 3", "2 planned"),
        ("== turn 1 of 2: 1 0\n", "lease 4\n== turn 1 of 2: 1 0\n", "lease 4.* stands before"),
    ],
)
def test_programs_that_are_not_those_of_the_plan_are_refused(old: str, new: str, words: str) -> None:
    document = shares_document()
    assert old in document["stdout"]
    document["stdout"] = document["stdout"].replace(old, new)
    with pytest.raises(ParseError, match=words):
        parse("remoting-shares", document, SHARES)


@pytest.mark.parametrize("change", [{"parts": ["1/2", "1/2"]}, {"server": "gpu2"}, {"emulated": False}])
def test_facts_must_be_those_of_the_plan(change: dict[str, Any]) -> None:
    document = shares_document()
    document["facts"] |= change
    with pytest.raises(ParseError, match="tenants: "):
        parse("remoting-shares", document, SHARES)


def judged(topology: Topology = HARDWARE, fabric: str = "roce100", **how: Any) -> list[Judgement]:
    """rm.fraction of a run of suite remoting whose servers' parts did so."""
    plan = plan_of(topology, ("preflight", "remoting"), fabric)
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    found += [shares_result(m, **how) for m in plan.measurements if m.kind == "remoting-shares"]
    return list(criterion(verdict_of(topology, plan, found, fabric=fabric), "rm.fraction").judgements)


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "pass"), (0.96, "pass"), (0.94, "fail")])
def test_together_is_held_against_the_whole(ratio: float, verdict: str) -> None:
    found = judged(emulated=False, ratio=ratio)
    assert [j.verdict for j in found] == [verdict] * 8
    assert {j.about.op for j in found} == {" + ".join(whole) for whole in WHOLES}
    assert found[0].value == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(("topology", "emulated"), [(LAB, True), (LAB, False), (HARDWARE, True)])
def test_rates_of_what_is_emulated_are_shown_and_judge_nothing(topology: Topology, emulated: bool) -> None:
    found = judged(topology, "tcp10", emulated=emulated, ratio=0.1)
    assert {(j.verdict, j.reason_code) for j in found} == {("not-measured", "virtual")}
    assert all(j.value == pytest.approx(0.1, abs=0.01) for j in found)


@pytest.mark.parametrize("topology", [LAB, HARDWARE])
def test_a_tenant_that_computes_something_else_fails_wherever_it_is(topology: Topology) -> None:
    change = of_tenant(1, "1/4", weights_sha256="f" * 64)
    found = judged(topology, "tcp10", emulated=topology is LAB, change=change)
    failed = [j for j in found if j.verdict == "fail"]
    assert {j.about.op for j in failed} == {"1/4 + 1/4 + 1/4 + 1/4"}
    assert all("4 tenants computed something else" in j.reason for j in failed)
