"""A tenant beside its neighbours, and changes of parts: what is refused, and what it is judged on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_neighbours_documents import (
    NEIGHBOURS,
    NOREBOOT,
    beside_result,
    neighbours_document,
    noreboot_document,
)
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.neighbours import NeighbourFacts, NoRebootFacts
from validation.measures.remoting.plan import WHOLES
from validation.model import Judgement, Result, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))
Changed = Callable[[int, str, dict[str, Any]], object]


def of(turn: int, case: str, /, **changes: Any) -> Changed:
    """Changes one program's report."""
    return lambda *who: who[2].update(changes) if who[:2] == (turn, case) else None


def failed(turn: int, case: str) -> Changed:
    """That tenant did not train."""
    return lambda *who: (who[2].clear(), who[2].update(failed="CUDA error 999")) if who[:2] == (turn, case) else None


def judged(id_: str, kind: str, topology: Topology = HARDWARE, **how: Any) -> list[Judgement]:
    """A criterion, of a run of suite remoting whose tenants fared so."""
    plan = plan_of(topology, ("preflight", "remoting"), "tcp10")
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found: list[Result] = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    found += [beside_result(m, **how) for m in plan.measurements if m.kind == kind]
    return list(criterion(verdict_of(topology, plan, found, fabric="tcp10"), id_).judgements)


# --- neighbours ------------------------------------------------------------------------------------------------


def test_a_tenant_is_told_apart_by_its_neighbour() -> None:
    samples, facts = parse("remoting-neighbours", neighbours_document(), NEIGHBOURS)
    assert isinstance(facts, NeighbourFacts)
    assert {s.metric for s in samples} == {"harmed", *(f"images_per_s_{case}" for case in ("alone", "noise", "fault"))}
    assert samples[0].value == 0
    assert [(end.turn, end.status, end.after) for end in facts.ends] == [(1, 2, 0), (2, 2, 0)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of(2, "neighbour", status=0), "nothing failed"),
        (of(2, "neighbour", ended_s=1.0), "its kernel failed -1999 s after the tenant began"),
        (of(2, "neighbour", ended_s=9e9), "after the tenant began, which trained for"),
        (of(2, "neighbour", ended_s="now"), "its end"),
        (of(2, "neighbour", after="no"), "after"),
        (of(2, "noise", devices=[{"name": "V100", "uuid": "GPU-1"}]), "another GPU"),
        (of(2, "noise", seed=2), "seed is not that of the first"),
        (of(2, "noise", batch=33, images_per_s=1.0), "do not follow from its steps"),
        (of(2, "noise", losses=[1.0] * 12), "its loss never changes"),
        (failed(1, "alone"), "alone the tenant did not train: CUDA error 999"),
    ],
)
def test_what_is_no_such_turn_is_refused(change: Changed, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-neighbours", neighbours_document(change=change), NEIGHBOURS)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("== turn 2 of 2: noise\n", "== turn 2 of 2: fault\n", "is there twice"),
        ("== turn 2 of 2: noise\n", "", "no whole JSON document"),
        ("== turn 2 of 2: noise\n", "== turn 3 of 2: noise\n", "7 of 8 planned programs"),
        ("of 2", "of 3", "2 planned"),
        ("== turn 1 of 2: alone\n", "lease 4\n== turn 1 of 2: alone\n", "lease 4.* stands before"),
    ],
)
def test_programs_that_are_not_those_of_the_plan_are_refused(old: str, new: str, words: str) -> None:
    document = neighbours_document()
    assert old in document["stdout"]
    document["stdout"] = document["stdout"].replace(old, new)
    with pytest.raises(ParseError, match=words):
        parse("remoting-neighbours", document, NEIGHBOURS)


@pytest.mark.parametrize(
    ("topology", "ratio", "verdict", "code"),
    [
        (HARDWARE, 0.97, "pass", "within-bounds"),
        (HARDWARE, 0.94, "fail", "below-floor"),
        (LAB, 0.4, "not-measured", "virtual"),
    ],
)
def test_noise_may_cost_a_tenant_a_twentieth_and_no_rate_of_processors_is_judged(
    topology: Topology, ratio: float, verdict: str, code: str
) -> None:
    found = judged("rm.noise", "remoting-neighbours", topology, emulated=topology is LAB, ratio=ratio)
    assert [(j.about.ends[0].node, j.verdict, j.reason_code) for j in found] == [
        ("gpu1", verdict, code),
        ("gpu2", verdict, code),
    ]
    assert found[0].value == pytest.approx(ratio, abs=0.01)
    assert all(("emulated" in j.reason) is (topology is LAB) for j in found)


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of(1, "noise", weights_sha256="f" * 64), "turn 1: the tenant computed something else than alone"),
        (failed(1, "noise"), "turn 1: the tenant failed: CUDA error 999"),
    ],
)
def test_a_tenant_that_noise_harms_fails_wherever_it_is(topology: Topology, change: Changed, words: str) -> None:
    found = judged("rm.noise", "remoting-neighbours", topology, emulated=topology is LAB, change=change)
    assert {j.verdict for j in found} == {"fail"}
    assert words in found[0].reason


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of(1, "fault", weights_sha256="f" * 64), "turn 1: the tenant computed something else than alone"),
        (failed(1, "fault"), "turn 1: the tenant failed: CUDA error 999"),
        (of(1, "neighbour", after=2), "turn 1: the next program on that half failed"),
    ],
)
def test_a_fault_that_goes_beyond_its_program_fails_wherever_it_is(
    topology: Topology, change: Changed, words: str
) -> None:
    assert {j.verdict for j in judged("rm.fault", "remoting-neighbours", topology, emulated=topology is LAB)} == {
        "pass"
    }
    found = judged("rm.fault", "remoting-neighbours", topology, emulated=topology is LAB, change=change)
    assert {j.verdict for j in found} == {"fail"}
    assert words in found[0].reason


# --- changes of parts ------------------------------------------------------------------------------------------


def test_every_way_to_cut_a_gpu_is_planned_on_every_server() -> None:
    mine = [m for m in plan_of(LAB, ("remoting",)).measurements if m.kind == "remoting-noreboot"]
    cuts = tuple("+".join(whole) for whole in WHOLES)
    assert [(m.params["server"], m.params["wholes"]) for m in mine] == [("gpu1", cuts), ("gpu2", cuts)]


@pytest.mark.parametrize("reboots", [0, 1, 2])
def test_another_boot_id_is_a_reboot(reboots: int) -> None:
    samples, facts = parse("remoting-noreboot", noreboot_document(reboots=reboots), NOREBOOT)
    assert isinstance(facts, NoRebootFacts)
    assert samples[0].value == reboots
    assert [s.value for s in samples if s.metric == "change_s"] == [2.5, 2.5]
    assert facts.reboots() == [f"server with {cut}" for cut in ("1/2 + 1/2", "3/4 + 5/20")][2 - reboots :]


def test_changes_that_are_not_those_of_the_plan_are_refused() -> None:
    with pytest.raises(ParseError, match=r"changes of parts: .* planned"):
        parse("remoting-noreboot", noreboot_document(), {**NOREBOOT, "wholes": ("1/2+1/2",)})
    with pytest.raises(ParseError, match="server"):
        parse("remoting-noreboot", noreboot_document(), {**NOREBOOT, "server": "gpu2"})


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
def test_a_reboot_fails_wherever_it_is(topology: Topology) -> None:
    assert {j.verdict for j in judged("rm.noreboot", "remoting-noreboot", topology, emulated=topology is LAB)} == {
        "pass"
    }
    found = judged("rm.noreboot", "remoting-noreboot", topology, emulated=topology is LAB, reboots=1)
    assert {j.verdict for j in found} == {"fail"}
    assert "server with 3/4 + 5/20" in found[0].reason
