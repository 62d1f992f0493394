"""A training natively and remotely, in turns: what is no such training, and what its figures are judged on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_train_documents import TRAIN, train_document, train_result
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.kinds.record import names
from validation.measures.remoting import remoting_train_probe
from validation.measures.remoting.train import RemoteTrainFacts
from validation.model import Judgement, Plan, Result, Topology
from validation.probes import remoting
from validation.probes.tool import Ran

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))


def test_every_server_is_trained_on_with_what_fits_its_gpus() -> None:
    for topology, least in ((LAB, 32), (HARDWARE, 8192)):
        mine = [m for m in plan_of(topology, ("remoting",)).measurements if m.kind == "remoting-train"]
        assert [m.params["server"] for m in mine] == ["gpu1", "gpu2"]
        assert {m.params["hidden"] for m in mine} == {least}
        assert all("32" in names(m, "batches") for m in mine), "the least batch that is judged"


def test_rates_of_all_steps_but_the_first_and_the_same_bits() -> None:
    samples, facts = parse("remoting-train", train_document(), TRAIN)
    found: dict[str, list[float]] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample.value)
    assert found["differing_runs"] == [0]
    assert len(found["images_per_s_native_32"]) == len(found["images_per_s_remote_32"]) == 2 * 11
    assert min(found["images_per_s_native_32"]) > 9800, "the first step is slow, and no sample"
    assert isinstance(facts, RemoteTrainFacts)
    assert facts.batches() == (8, 32, 64)
    assert {run.host for run in facts.of("native", 8)} == {"gpu1"}


def of_job(turn: int, way: str, batch: int, /, **changes: Any) -> Callable[[int, str, int, dict[str, Any]], object]:
    """Changes one job's report."""
    return lambda *job: job[3].update(changes) if job[:3] == (turn, way, batch) else None


LOSSES = [2.3 / (1 + at / 32) for at in range(12)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"losses": [*LOSSES[:5], LOSSES[5] * (1 + 2**-23), *LOSSES[6:]]}, "another loss from step 6 on"),
        ({"weights_sha256": "f" * 64}, "the same losses, other weights"),
    ],
)
def test_one_other_bit_is_counted_and_named(changes: dict[str, Any], words: str) -> None:
    samples, facts = parse("remoting-train", train_document(change=of_job(2, "remote", 32, **changes)), TRAIN)
    assert samples[0].value == 1
    assert isinstance(facts, RemoteTrainFacts)
    assert [str(other) for other in facts.differing()] == [f"turn 2, remote, batch 32: {words}"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 11}, "steps is not that of the first job"),
        ({"seed": 2}, "seed is not that of the first job"),
        ({"code_sha256": "d" * 64}, "code_sha256 is not that"),
        ({"emulated": False}, "emulated is not that"),
        ({"devices": [{"name": "Emulated V100", "uuid": "GPU-1"}]}, "another GPU"),
        ({"batch": 8}, "8 images of a step"),
        ({"gpus": 2}, "no training by elastic-ai-train on 1 GPU"),
        ({"infer": True}, "no training by"),
        ({"tool": "elastic-ai-copybench"}, "no training by"),
        ({"losses": LOSSES[:11]}, "12 times and 11 losses of 12 steps"),
        ({"losses": [1.5] * 12}, "its loss never changes"),
        ({"losses": [*LOSSES[:11], None]}, "loss: None is not a number"),
        ({"losses": [*LOSSES[:11], -1.0]}, "not a usable value"),
        ({"step_s": [0.1] * 11}, "11 times and 12 losses"),
        ({"step_s": [0.0] * 12}, "not a usable value"),
        ({"images_per_s": 20_000.0}, "do not follow from its steps"),
        ({"weights_sha256": "none"}, "weights_sha256"),
        ({"launches": -1}, "launches"),
        ({"host": ""}, "host"),
    ],
)
def test_what_is_no_such_training_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-train", train_document(change=of_job(2, "remote", 32, **changes)), TRAIN)


def test_a_native_training_through_an_engine_is_none() -> None:
    server = [{"host": "gpu1", "emulated": True, "devices": []}]
    with pytest.raises(ParseError, match="turn 1, native, batch 8: its GPU was reached through an engine"):
        parse("remoting-train", train_document(change=of_job(1, "native", 8, servers=server)), TRAIN)


@pytest.mark.parametrize("emulated", [False, 1, None])
def test_pool_and_program_must_agree_whether_gpus_are_emulated(emulated: object) -> None:
    document = train_document()
    document["facts"]["emulated"] = emulated
    with pytest.raises(ParseError, match="emulated"):
        parse("remoting-train", document, TRAIN)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("== turn 2 of 2: remote 32\n", "", "no whole JSON document"),
        ("== turn 2 of 2: remote 32\n", "== turn 2 of 2: native 32\n", "two jobs are turn 2, native, batch 32"),
        ("of 2", "of 3", "2 planned"),
        ("== turn 2 of 2: remote 32\n", "== turn 3 of 2: remote 32\n", "11 of 12 planned jobs"),
        ("== turn 1 of 2: native 8\n", "lease 4\n== turn 1 of 2: native 8\n", "'?lease 4'? stands before"),
    ],
)
def test_jobs_that_are_not_those_of_the_plan_are_refused(old: str, new: str, words: str) -> None:
    document = train_document()
    assert old in document["stdout"]
    document["stdout"] = document["stdout"].replace(old, new)
    with pytest.raises(ParseError, match=words):
        parse("remoting-train", document, TRAIN)


def test_nothing_printed_is_no_training() -> None:
    with pytest.raises(ParseError, match="no job's output is there"):
        parse("remoting-train", train_document() | {"stdout": ""}, TRAIN)


# --- judging ---------------------------------------------------------------------------------------------------


def judged(id_: str, topology: Topology = HARDWARE, fabric: str = "roce100", **how: Any) -> list[Judgement]:
    """Of a run of suite remoting in which both servers were trained on in this way."""
    plan = plan_of(topology, ("preflight", "remoting"), fabric)
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    found += [train_result(m, **how) for m in plan.measurements if m.kind == "remoting-train"]
    return list(criterion(verdict_of(topology, plan, found, fabric=fabric), id_).judgements)


def outcomes(found: list[Judgement]) -> list[tuple[str, str, str]]:
    """Of the first server."""
    return [(j.about.op, j.verdict, j.reason_code) for j in found if j.about.ends[0].node == "gpu1"]


def test_ratios_are_held_against_the_fabric_from_batch_32_on() -> None:
    found = judged("rm.ratio", emulated=False, ratios={8: 0.5, 32: 0.9, 128: 0.97, 512: 0.99})
    assert outcomes(found) == [
        ("batch 8", "not-applicable", "reported"),
        ("batch 32", "fail", "below-floor"),
        ("batch 128", "pass", "within-bounds"),
        ("batch 512", "pass", "within-bounds"),
    ]
    assert found[1].value == pytest.approx(0.9, abs=0.001)
    assert found[1].low is not None
    assert found[1].low < 0.9 < (found[1].high or 0)
    assert "remote 9000 / native 1e+04 images/s = 0.900" in found[1].reason


def test_a_ratio_whose_interval_holds_the_bound_is_not_decided() -> None:
    found = judged("rm.ratio", emulated=False, ratios={32: 0.95, 128: 0.95, 512: 0.95})
    assert {(j.verdict, j.reason_code) for j in found if j.about.op != "batch 8"} == {("not-measured", "too-noisy")}


@pytest.mark.parametrize("id_", ["rm.ratio", "rm.batch"])
@pytest.mark.parametrize(("topology", "emulated"), [(LAB, True), (LAB, False), (HARDWARE, True)])
def test_rates_of_what_is_emulated_are_shown_and_judge_nothing(id_: str, topology: Topology, emulated: bool) -> None:
    found = judged(id_, topology, "tcp10", emulated=emulated, ratios={8: 0.9, 32: 0.1, 64: 0.01})
    assert {(j.verdict, j.reason_code) for j in found} == {("not-measured", "virtual")}
    assert all(j.value is not None and "not judged" in j.reason for j in found)


@pytest.mark.parametrize("topology", [LAB, HARDWARE])
def test_the_same_bits_are_judged_wherever_it_runs(topology: Topology) -> None:
    emulated = topology is LAB
    assert {j.verdict for j in judged("rm.same", topology, "tcp10", emulated=emulated)} == {"pass"}
    found = judged(
        "rm.same", topology, "tcp10", emulated=emulated, change=of_job(1, "remote", 32, weights_sha256="f" * 64)
    )
    assert {j.verdict for j in found} == {"fail"}
    assert "turn 1, remote, batch 32: the same losses, other weights" in found[0].reason


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ({8: 0.5, 32: 0.9, 128: 0.97, 512: 0.99}, "pass"),
        ({8: 0.97, 32: 0.97, 128: 0.965, 512: 0.97}, "pass"),
        ({8: 0.5, 32: 0.97, 128: 0.98, 512: 0.9}, "fail"),
        ({8: 0.99, 32: 0.98, 128: 0.97, 512: 0.94}, "fail"),  # each step by little, all together by more
    ],
)
def test_the_ratio_may_not_fall_as_the_batch_grows(ratios: dict[int, float], verdict: str) -> None:
    found = judged("rm.batch", emulated=False, ratios=ratios)
    assert [j.verdict for j in found] == [verdict] * 2
    assert "batch 8: 0." in str(found[0].text)


def test_a_result_that_lacks_steps_or_facts_is_not_judged() -> None:
    plan = plan_of(HARDWARE, ("preflight", "remoting"), "roce100")
    spoils: tuple[Callable[[Result], dict[str, Any]], ...] = (
        lambda r: {"samples": r.samples[:-1]},
        lambda r: {"facts": {}},
        lambda r: {"samples": (*r.samples[:-1], r.samples[-1].model_copy(update={"value": -1.0}))},
        lambda r: {"samples": tuple(s.model_copy(update={"unit": "images/ms"}) for s in r.samples)},
    )
    for spoil in spoils:
        found = [healthy(m, facts={**FACTS, **REAL_FACTS}) for m in plan.measurements if m.kind == "facts"]
        for m in plan.measurements:
            if m.kind == "remoting-train":
                whole = train_result(m, emulated=False)
                found.append(whole.model_copy(update=spoil(whole)))
        verdict = verdict_of(HARDWARE, plan, found, fabric="roce100")
        for id_ in ("rm.ratio", "rm.batch"):
            assert criterion(verdict, id_).reason_code == "missing-metric", id_


def test_a_count_that_the_trainings_do_not_bear_out_is_no_pass() -> None:
    plan: Plan = plan_of(HARDWARE, ("preflight", "remoting"), "roce100")
    found = [healthy(m, facts={**FACTS, **REAL_FACTS}) for m in plan.measurements if m.kind == "facts"]
    for m in plan.measurements:
        if m.kind == "remoting-train":
            wrong = train_result(m, emulated=False, change=of_job(1, "remote", 32, weights_sha256="f" * 64))
            first = wrong.samples[0].model_copy(update={"value": 0})
            found.append(wrong.model_copy(update={"samples": (first, *wrong.samples[1:])}))
    same = criterion(verdict_of(HARDWARE, plan, found, fabric="roce100"), "rm.same")
    assert (same.verdict, same.reason_code) == ("not-measured", "missing-metric")
    assert "contradict each other" in same.reason


# --- the probe's own steps -------------------------------------------------------------------------------------


def asked(**changes: Any) -> remoting_train_probe.Asked:
    values: dict[str, Any] = {**TRAIN, "batches": ["8"], "limit_s": 10.0}
    return remoting_train_probe.Asked(**{**values, **changes})


def test_a_failed_job_ends_the_measurement_and_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    ran: list[list[str]] = []

    def run_tool(command: list[str], *_: object) -> Ran:
        ran.append(command)
        if "device" in command:
            return Ran(command, 0, json.dumps({"devices": [{"uuid": "GPU-7"}]}), "")
        return Ran(command, 2 if command[0] == "toolkit" else 0, "{}", "elastic-ai-train: 801")

    monkeypatch.setattr(remoting, "ask", lambda *_: {"lease": 5})
    monkeypatch.setattr(remoting, "release", released.append)
    monkeypatch.setattr(remoting_train_probe, "run_tool", run_tool)
    with pytest.raises(remoting.Unmet, match="turn 1, remote, batch 8: elastic-ai-train: 801"):
        remoting_train_probe.train(asked())
    assert released == [5]
    native = next(command for command in ran if command[0] == "srun")
    assert "--jobid=5" in native
    assert native[native.index("env") + 1] == "CUDA_VISIBLE_DEVICES=GPU-7", "the very GPU of the lease"


def test_a_lease_that_shows_no_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting, "ask", lambda *_: {"lease": 5})
    monkeypatch.setattr(remoting, "release", lambda _lease: None)
    monkeypatch.setattr(remoting_train_probe, "run_tool", lambda *_: Ran([], 0, '{"code": 46}', ""))
    with pytest.raises(remoting.Unmet, match="shows 0 devices"):
        remoting_train_probe.train(asked())


def test_an_older_release_that_knows_no_costs_trains_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the server, say, which is provisioned later than the client."""

    def run_tool(command: list[str], *_: object) -> Ran:
        if "device" in command:
            return Ran(command, 0, json.dumps({"devices": [{"uuid": "GPU-7"}]}), "")
        if command[0] == "srun" and "--costs" in command:
            return Ran(command, 2, "", "usage: ...\nelastic-ai-train: error: unrecognized arguments: --costs\n")
        return Ran(command, 0, json.dumps({"costs": "--costs" in command}), "")

    monkeypatch.setattr(remoting, "ask", lambda *_: {"lease": 5})
    monkeypatch.setattr(remoting, "release", lambda _lease: None)
    monkeypatch.setattr(remoting_train_probe, "run_tool", run_tool)
    said = remoting_train_probe.train(asked(), "--costs").stdout
    assert "native 8\n" + json.dumps({"costs": False}) in said
    assert "remote 8\n" + json.dumps({"costs": True}) in said
