"""The model of remoting: what it makes of constructed costs, what it says would help, and what it does not explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_train_documents import TRAIN, train_document
from tests.unit.test_remoting_train import HARDWARE, LAB, judged, of_job, outcomes
from validation.analysis.remote_model import Calls, Costs, Prediction, Step, costs, gains, predict
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.explained import KINDS, Explained, advice, explained
from validation.measures.remoting.train import RemoteTrainFacts

NATIVE = Calls(synchronisation=10e-6, launches=60e-6, to_device=110e-6, from_device=25e-6)
STEP = Step(
    batch=32, native=5e-3, waiting=10e-6, launches=13, bytes_to=131_200, bytes_from=4, synchronisations=1
)  # fmt: skip


def made(step: Step, one: Costs) -> Calls:
    """What would be measured remotely if a call and a byte cost so much more there."""
    wait = NATIVE.synchronisation + one.synchronisation
    return Calls(
        synchronisation=wait,
        launches=wait + NATIVE.launches - NATIVE.synchronisation + one.launch * step.launches,
        to_device=wait + NATIVE.to_device - NATIVE.synchronisation + one.byte_to * step.bytes_to,
        from_device=wait + NATIVE.from_device - NATIVE.synchronisation + one.byte_from * step.bytes_from,
    )


@pytest.mark.parametrize(
    "one",
    [
        Costs(synchronisation=50e-6, launch=0.1e-6, byte_to=1 / 1.2e9, byte_from=1 / 1e9, idle=0.0),
        Costs(synchronisation=4e-3, launch=5e-6, byte_to=1 / 0.12e9, byte_from=0.0, idle=0.0),
    ],
)
def test_constructed_costs_are_recovered_and_make_the_step(one: Costs) -> None:
    found = costs(STEP, NATIVE, made(STEP, one))
    for key in ("synchronisation", "launch", "byte_to", "byte_from", "idle"):
        assert getattr(found, key) == pytest.approx(getattr(one, key), abs=1e-12), key
    wanted = STEP.native + one.synchronisation + 13 * one.launch + 131_200 * one.byte_to + 4 * one.byte_from
    assert predict(STEP, found).remote == pytest.approx(wanted)
    assert predict(STEP, found).ratio == pytest.approx(STEP.native / wanted)


def test_each_count_is_charged_as_often_as_it_is() -> None:
    one = Costs(synchronisation=1.0, launch=0.01, byte_to=1e-4, byte_from=1e-3, idle=0.0)
    step = Step(batch=8, native=1.0, waiting=0.0, launches=100, bytes_to=1000, bytes_from=100, synchronisations=3)
    found = predict(step, one)
    assert (found.synchronisations, found.copies, found.launches) == pytest.approx((3.0, 0.2, 1.0))


def test_launches_are_hidden_as_long_as_the_device_works_on() -> None:
    dear = Costs(synchronisation=0.0, launch=5e-6, byte_to=0.0, byte_from=0.0, idle=0.0)
    for waiting, added in ((10e-6, 65e-6), (50e-6, 25e-6), (4e-3, 0.0)):
        step = Step(**{**vars(STEP), "waiting": waiting})
        assert predict(step, costs(step, NATIVE, made(step, dear))).launches == pytest.approx(added)


@pytest.mark.parametrize("key", ["launches", "bytes_to", "bytes_from", "synchronisations"])
def test_a_step_that_asks_for_nothing_has_no_costs(key: str) -> None:
    with pytest.raises(ValueError, match="launches, copies both ways and waits"):
        costs(Step(**{**vars(STEP), key: 0}), NATIVE, NATIVE)


def test_costs_below_nothing_make_no_step() -> None:
    with pytest.raises(ValueError, match="less than nothing"):
        predict(STEP, Costs(synchronisation=-1.0, launch=0.0, byte_to=0.0, byte_from=0.0, idle=0.0))


def step_of(**parts: float) -> Prediction:
    whole = {"native": 1e-3, "synchronisations": 0.0, "copies": 0.0, "launches": 0.0, "bytes": 1e6}
    return Prediction(batch=32, **{**whole, **parts})


@pytest.mark.parametrize(
    ("parts", "natives", "link", "best", "ratio"),
    [
        ({"synchronisations": 1e-3}, {32: 1e-3}, None, "half the latency", 1 / 1.5),
        ({"synchronisations": 1e-3}, {8: 0.25e-3, 32: 1e-3}, None, "a batch twice as large", 2 / 3),
        ({"copies": 1e-3}, {8: 0.25e-3, 32: 1e-3}, None, "copies twice as fast", 1 / 1.5),
        ({"copies": 1e-3}, {8: 0.25e-3, 32: 1e-3}, 1e9, "a link twice as fast", 1 / 1.5),
        ({"copies": 1e-3}, {8: 0.25e-3, 32: 1e-3}, 10e9, "copies as fast as the link", 1 / 1.1),
        ({"launches": 1e-3}, {32: 1e-3}, None, "launches at half the cost", 1 / 1.5),
        # What a step has beside its images natively is less of a larger one, and hides nothing.
        ({"launches": 1e-3}, {16: 0.9e-3, 32: 1e-3}, None, "launches at half the cost", 1 / 1.5),
    ],
)
def test_what_helps_most_follows_from_the_largest_term(
    parts: dict[str, float], natives: dict[int, float], link: float | None, best: str, ratio: float
) -> None:
    found = gains(step_of(**parts), natives, link)
    assert found[0].change.startswith(best)
    assert found[0].ratio == pytest.approx(ratio)
    assert [gain.ratio for gain in found] == sorted((gain.ratio for gain in found), reverse=True)


def test_what_gains_nothing_is_not_named() -> None:
    assert gains(step_of(synchronisations=2e-6), {32: 1e-3, 64: 2e-3}) == []
    assert gains(step_of(synchronisations=-1e-4, copies=-1e-5), {32: 1e-3, 64: 2e-3}) == []
    one = Explained(step_of(synchronisations=2e-6), 0.99, ())
    assert advice(one) == "nothing that the model knows would raise the predicted 0.998 noticeably"


def facts_of(**how: Any) -> RemoteTrainFacts:
    _, facts = parse("remoting-train", train_document(**how), TRAIN)
    assert isinstance(facts, RemoteTrainFacts)
    return facts


def test_a_measured_training_is_explained_batch_by_batch() -> None:
    found = explained(facts_of(ratios={8: 0.5, 32: 0.9, 64: 0.97}))
    for batch, ratio in ((8, 0.5), (32, 0.9), (64, 0.97)):
        one = found[batch]
        assert isinstance(one, Explained)
        assert one.measured == pytest.approx(ratio)
        assert one.prediction.ratio == pytest.approx(ratio)
        assert one.holds
    assert isinstance(found[8], Explained)
    assert advice(found[8]).startswith("a batch twice as large would help most: 0.667 for the predicted 0.500, half")


def without(*keys: str) -> Callable[[int, str, int, dict[str, Any]], object]:
    """An older release's report: of the second turn's remote job of batch 32."""
    return lambda *job: [job[3].pop(key) for key in keys] if job[:3] == (2, "remote", 32) else None


def test_without_costs_of_both_ways_nothing_is_predicted() -> None:
    found = explained(facts_of(change=without("costs", "wait_s")))
    assert isinstance(found[8], Explained)
    assert found[32] == "what its calls cost was not measured: elastic-ai-train of an older release"


def costs_of(**changes: Any) -> Callable[[int, str, int, dict[str, Any]], object]:
    return lambda *job: job[3]["costs"].update(changes) if job[:3] == (2, "remote", 32) else None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (costs_of(launches_each=12), "launches_each: not those of a step"),
        (costs_of(bytes_to_device=4), "bytes_to_device: not those of a step"),
        (costs_of(bytes_from_device=8), "bytes_from_device: not those of a step"),
        (costs_of(launches_s=[1e-5]), "costs of 3, 1, 3, 3 rounds"),
        (costs_of(**{f"{kind}_s": [] for kind in KINDS}), "0, 0"),
        (costs_of(synchronisation_s=[1e-5, 0.0, 1e-5]), "not a usable value"),
        (costs_of(to_device_s=["1", 1e-5, 1e-5]), "not a number"),
        (of_job(2, "remote", 32, wait_s=[1e-5] * 11), "no part of its steps"),
        (of_job(2, "remote", 32, wait_s=[9.0] * 12), "no part of its steps"),
    ],
)
def test_costs_that_are_none_of_the_step_are_refused(change: Any, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-train", train_document(change=change), TRAIN)


def test_predicted_beside_measured_is_reported_and_judges_nothing() -> None:
    for topology, emulated in ((HARDWARE, False), (HARDWARE, True), (LAB, True)):
        found = judged("rm.model", topology, emulated=emulated, ratios={8: 0.5, 32: 0.9})
        assert {(one[1], one[2]) for one in outcomes(found)} == {("not-applicable", "reported")}
        assert found[1].about.op == "batch 32"
        assert found[1].value == pytest.approx(1.0)
        assert found[1].text == "predicted 0.900, measured 0.900 (+0.0%)" or found[1].text == (
            "predicted 0.900, measured 0.900 (-0.0%)"
        )
        assert ("GPUs are emulated" in found[1].reason) is emulated


def test_a_ratio_that_nothing_counted_explains_is_told() -> None:
    def cheap(turn: int, way: str, batch: int, report: dict[str, Any]) -> None:
        for key in ("synchronisation_s", "launches_s", "to_device_s", "from_device_s"):
            report["costs"][key] = [1e-5] * 3

    found = judged("rm.model", emulated=False, ratios={32: 0.5}, change=cheap)
    assert found[1].value == pytest.approx(2.0)
    assert "beyond 15%: something takes time that is not counted" in found[1].reason
    assert "nothing that the model knows" in found[1].reason


def test_a_training_without_costs_leaves_its_batch_unmeasured() -> None:
    found = judged("rm.model", emulated=False, change=without("costs"))
    assert ("batch 32", "not-measured", "missing-metric") in outcomes(found)
    assert ("batch 8", "not-applicable", "reported") in outcomes(found)
