"""One training on several GPUs in several places: what is refused, and what it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_train_documents import RATE
from tests.support.remote_worlds_documents import LAYOUT, SCALE, layout_document, scale_document, worlds_result
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import remoting_layout_probe, remoting_scale_probe
from validation.measures.remoting.worlds import WorldsFacts
from validation.model import Judgement, Result, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))


def of_job(turn: int, name: str, /, **changes: Any) -> Callable[[int, str, dict[str, Any]], object]:
    """Changes one job's report."""
    return lambda *who: who[2].update(changes) if who[:2] == (turn, name) else None


@pytest.mark.parametrize(
    ("servers", "many"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_servers_take_part_in_twos_fours_and_all(servers: int, many: list[int]) -> None:
    assert remoting_scale_probe.prefixes(servers) == many


def test_all_servers_are_planned_from_one_client() -> None:
    (mine,) = (m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-scale")
    assert mine.nodes == ("client1", "gpu1", "gpu2")
    assert mine.params["servers"] == ("gpu1", "gpu2")
    assert mine.criteria == ("rm.scale",)


def test_each_step_but_the_first_of_each_job_is_a_sample() -> None:
    samples, facts = parse("remoting-scale", scale_document(), SCALE)
    assert isinstance(facts, WorldsFacts)
    assert facts.names() == ("one", "servers-1", "servers-2")
    assert [facts.of(name)[0].gpus for name in facts.names()] == [1, 2, 4]
    assert samples[0].value == 0
    rates = [s.value for s in samples if s.metric == "images_per_s_servers-2"]
    assert rates == pytest.approx([4 * 0.9 * RATE] * 22, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 3}, "on another number of GPUs than planned"),
        ({"devices": [{"name": "V100", "uuid": "GPU-0"}] * 4}, "no training by .* on 4 GPUs"),
        ({"batch": 64}, "do not follow from its steps"),
        ({"seed": 2}, "seed is not that of the first job"),
        ({"hidden": 33}, "hidden is not that"),
        ({"losses": [1.0] * 12}, "its loss never changes"),
        ({"infer": True}, "no training by"),
        ({"steps": 11}, "12 times and 12 losses of 11 steps"),
    ],
)
def test_what_is_no_such_job_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-scale", scale_document(change=of_job(2, "servers-2", **changes)), SCALE)


def test_another_share_of_images_for_each_gpu_is_refused() -> None:
    def larger(turn: int, name: str, made: dict[str, Any]) -> None:
        if name == "servers-2":
            made["batch"] *= 2
            made["images_per_s"] *= 2

    with pytest.raises(ParseError, match="another share of images for each GPU"):
        parse("remoting-scale", scale_document(change=larger), SCALE)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("== turn 2 of 2: servers-2 4\n", "== turn 2 of 2: servers-1 2\n", "is there twice"),
        ("== turn 2 of 2: servers-2 4\n", "", "no whole JSON document"),
        ("== turn 2 of 2: servers-2 4\n", "== turn 3 of 2: servers-2 4\n", "5 of 6 planned jobs"),
        ("of 2", "of 3", "2 planned"),
        ("== turn 1 of 2: one 1\n", "lease 4\n== turn 1 of 2: one 1\n", "lease 4.* stands before"),
    ],
)
def test_jobs_that_are_not_those_of_the_plan_are_refused(old: str, new: str, words: str) -> None:
    document = scale_document()
    assert old in document["stdout"]
    document["stdout"] = document["stdout"].replace(old, new)
    with pytest.raises(ParseError, match=words):
        parse("remoting-scale", document, SCALE)


@pytest.mark.parametrize("change", [{"servers": ["gpu1"]}, {"gpus": [2]}, {"gpus": [0, 4]}, {"emulated": False}])
def test_facts_must_be_those_of_the_plan(change: dict[str, Any]) -> None:
    document = scale_document()
    document["facts"] |= change
    with pytest.raises(ParseError, match="scaling: "):
        parse("remoting-scale", document, SCALE)


def judged(id_: str, kind: str, topology: Topology = HARDWARE, fabric: str = "roce100", **how: Any) -> list[Judgement]:
    """A criterion, of a run of suite remoting whose trainings on several GPUs came out so."""
    plan = plan_of(topology, ("preflight", "remoting"), fabric)
    facts = {**FACTS, **(REAL_FACTS if topology is not LAB else {})}
    found: list[Result] = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    found += [worlds_result(m, **how) for m in plan.measurements if m.kind == kind]
    return list(criterion(verdict_of(topology, plan, found, fabric=fabric), id_).judgements)


@pytest.mark.parametrize(("topology", "emulated"), [(HARDWARE, False), (LAB, True)])
def test_scaling_is_reported_with_its_efficiency(topology: Topology, emulated: bool) -> None:
    found = judged("rm.scale", "remoting-scale", topology, "tcp10", emulated=emulated, ratio=0.8)
    assert {(j.verdict, j.reason_code) for j in found} == {("not-applicable", "reported")}
    assert [j.about.op for j in found] == ["2 GPUs, servers 1", "4 GPUs, servers 2"]
    assert all(j.value == pytest.approx(0.8, abs=0.01) for j in found)
    assert all(("emulated" in j.reason) is emulated for j in found)


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
def test_another_turn_that_computes_something_else_fails_wherever_it_is(topology: Topology) -> None:
    change = of_job(2, "servers-2", weights_sha256="f" * 64)
    (found,) = judged("rm.scale", "remoting-scale", topology, "tcp10", emulated=topology is LAB, change=change)
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert "1 trainings computed something else: turn 2, servers-2" in found.reason


# --- layouts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "others", "names"),
    [
        (4, 4, ["N4", "L4", "L2R2", "R4"]),
        (8, 3, ["N2", "L2", "L1R1", "R2"]),
        (1, 4, ["N1", "L1", "R1"]),
        (4, None, ["N4", "L4"]),
    ],
)
def test_layouts_take_as_many_gpus_as_both_servers_have(own: int, others: int | None, names: list[str]) -> None:
    gpus = remoting_layout_probe.gpus_of_each(own, others)
    assert remoting_layout_probe.layouts(gpus, "gpu2" if others else "") == names


def test_layouts_are_planned_from_the_first_server() -> None:
    (mine,) = (m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-layout")
    assert (mine.nodes, mine.params["server"], mine.params["other"]) == (("gpu1", "gpu2"), "gpu1", "gpu2")


@pytest.mark.parametrize(
    ("name", "uuids"),
    [
        ("N4", "b0 b1 b2 b3"),
        ("L4", "a0 a1 a2 b0"),
        ("L2R2", "a0 a1 a2 b0"),
        ("R4", "a0 b0 b1 b2"),
        ("R4", "c0 c1 c2 c3"),
    ],
)
def test_a_layout_on_other_gpus_than_its_own_is_refused(name: str, uuids: str) -> None:
    devices = [{"name": "V100", "uuid": f"GPU-{uuid}"} for uuid in uuids.split()]
    with pytest.raises(ParseError, match=rf"layouts: turn 2, {name}: \d own GPUs and \d of the other server"):
        parse("remoting-layout", layout_document(gpus=4, change=of_job(2, name, devices=devices)), LAYOUT)


def test_a_native_layout_through_an_engine_is_refused() -> None:
    with pytest.raises(ParseError, match="reached through an engine"):
        parse("remoting-layout", layout_document(gpus=4, change=of_job(1, "N4", servers=[{}])), LAYOUT)


@pytest.mark.parametrize("change", [{"server": "gpu2"}, {"other": ""}, {"gpus": 2}, {"gpus": 0}, {"own": []}])
def test_facts_of_layouts_must_be_those_of_the_plan(change: dict[str, Any]) -> None:
    document = layout_document(gpus=4)
    document["facts"] |= change
    with pytest.raises(ParseError, match="layouts: "):
        parse("remoting-layout", document, LAYOUT)


def layouts_judged(topology: Topology = HARDWARE, **how: Any) -> list[tuple[str, str, str]]:
    found = judged("rm.layout", "remoting-layout", topology, gpus=4, emulated=topology is LAB, **how)
    return [(j.about.op, j.verdict, j.reason_code) for j in found]


def test_layouts_are_held_against_the_native_one() -> None:
    assert layouts_judged(ratios={"L": 0.98, "LR": 0.97, "R": 0.9}) == [
        ("L4", "pass", "within-bounds"),
        ("L2R2", "pass", "within-bounds"),
        ("R4", "fail", "below-floor"),
    ]


def test_layouts_of_emulated_gpus_are_shown_and_not_judged() -> None:
    assert {(verdict, code) for _, verdict, code in layouts_judged(LAB, ratios={"R": 0.1})} == {
        ("not-measured", "virtual")
    }


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
def test_a_layout_that_computes_something_else_fails_wherever_it_is(topology: Topology) -> None:
    change = of_job(2, "L2R2", weights_sha256="f" * 64)
    assert [verdict for _, verdict, _ in layouts_judged(topology, change=change)] == ["fail"]


def test_with_one_server_nothing_is_remote() -> None:
    alone = hardware(("head", "client1", "gpu1"))
    found = judged("rm.layout", "remoting-layout", alone, gpus=4, emulated=False)
    assert [(j.about.op, j.verdict) for j in found] == [("L4", "pass"), ("R", "not-measured")]
    assert "the only GPU server" in found[1].reason
