"""Answers natively and through the engine: what is refused, and what it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_train_documents import INFER, RATE, infer_document, infer_result
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.infer import InferFacts, at_percent
from validation.model import Judgement, Result, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))


def of_job(turn: int, way: str, batch: int, /, **changes: Any) -> Callable[[int, str, int, dict[str, Any]], object]:
    """Changes one job's report."""
    return lambda *who: who[3].update(changes) if who[:3] == (turn, way, batch) else None


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)], ids=lambda value: str(value)
)
def test_what_so_many_of_a_hundred_do_not_exceed(percent: int, expected: float) -> None:
    assert at_percent([float(at) for at in range(100, 0, -1)], percent) == expected
    assert at_percent([7.0], percent) == 7.0


def test_every_server_is_planned() -> None:
    mine = [m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-infer"]
    assert [(m.nodes, m.params["batches"]) for m in mine] == [
        (("client1", "gpu1"), ("1", "8", "64")),
        (("client1", "gpu2"), ("1", "8", "64")),
    ]


def test_each_answer_but_the_first_of_each_job_is_a_sample() -> None:
    samples, facts = parse("remoting-infer", infer_document(ratio=0.5), INFER)
    assert isinstance(facts, InferFacts)
    mine = {way: [s.value for s in samples if s.metric == f"answer_us_{way}_8"] for way in ("native", "remote")}
    assert {way: len(values) for way, values in mine.items()} == {"native": 200, "remote": 200}
    assert at_percent(mine["native"], 50) == pytest.approx(8e6 / RATE, rel=0.02)
    assert at_percent(mine["remote"], 50) == pytest.approx(2 * 8e6 / RATE, rel=0.02)
    run = next(run for run in facts.runs if (run.way, run.batch) == ("remote", 8))
    assert run.p50_us <= run.p99_us
    assert run.images_per_s == pytest.approx(RATE / 2, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"infer": False}, "no answers by"),
        ({"gpus": 2}, "no answers by"),
        ({"steps": 100}, "steps is not that of the first job"),
        ({"step_s": [0.1] * 3}, "3 times of 101 steps"),
        ({"images_per_s": 1.0}, "do not follow from its steps"),
        ({"answers_sha256": ""}, "answers_sha256"),
        ({"batch": 9}, "9 images of a step"),
    ],
)
def test_what_is_no_such_job_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-infer", infer_document(change=of_job(2, "remote", 8, **changes)), INFER)


def judged(topology: Topology = HARDWARE, **how: Any) -> list[Judgement]:
    """rm.infer of a run of suite remoting whose answers came so."""
    plan = plan_of(topology, ("preflight", "remoting"), "tcp10")
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found: list[Result] = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    found += [infer_result(m, **how) for m in plan.measurements if m.kind == "remoting-infer"]
    return list(criterion(verdict_of(topology, plan, found, fabric="tcp10"), "rm.infer").judgements)


@pytest.mark.parametrize(("topology", "emulated"), [(HARDWARE, False), (LAB, True)])
def test_latency_and_rate_are_reported_both_ways(topology: Topology, emulated: bool) -> None:
    found = judged(topology, emulated=emulated)
    assert {(j.verdict, j.reason_code) for j in found} == {("not-applicable", "reported")}
    assert [j.about.op for j in found[:3]] == ["batch 1", "batch 8", "batch 64"]
    assert found[0].value == pytest.approx(2e6 / RATE, rel=0.02)
    assert "remote 200 us, at 99 % 202 us, 5000 images/s; native 100 us, at 99 % 101 us, 1e+04" in found[0].reason
    assert all(("emulated" in j.reason) is emulated for j in found)


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
def test_other_answers_fail_wherever_they_are(topology: Topology) -> None:
    found = judged(topology, emulated=topology is LAB, change=of_job(2, "remote", 8, answers_sha256="f" * 64))
    assert [j.verdict for j in found] == 2 * ["not-applicable", "fail", "not-applicable"]
    assert "1 job with other answers: turn 2, remote, batch 8" in found[1].reason
