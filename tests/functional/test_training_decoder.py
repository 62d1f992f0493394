"""A decoder's training: the tiny one for real on two ranks over Gloo, and its losses; and the judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import gpu_copies_documents as copies
from tests.support.site import criterion, hardware, lab, plan_of, result, verdict_of
from tests.support.torch_env import python
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.training import training_decoder_probe
from validation.measures.training.decoder import DecoderFacts, curve_of, recorded
from validation.model import Judgement, Plan, Topology
from validation.plan.suites import PlanError
from validation.probes import train_decoder
from validation.probes.train_cnn import CannotTrain
from validation.probes.train_decoders import DECODERS

RECORDING = json.loads((Path(__file__).parents[1] / "data/kinds/training-decoder.json").read_text(encoding="utf-8"))
H100 = "NVIDIA H100 80GB HBM3"


def asked(**changes: Any) -> training_decoder_probe.Asked:
    values: dict[str, Any] = {
        "ranks": 2, "hosts": ["localhost:2"], "networks": [], "warmup": 5, "steps": 35, "batch": 4, "device": "cpu",
        "time_limit_s": 240, "launcher": "torchrun", "enter": "", "python": str(python()),
    }  # fmt: skip
    return training_decoder_probe.Asked(**{**values, **changes})


def trained(**changes: Any) -> DecoderFacts:
    job = asked(**changes)
    doc = training_decoder_probe.probe(job)
    assert doc["error"] is None, doc["stderr"][-2000:]
    planned = {
        key: getattr(job, key) for key in ("ranks", "model", "precision", "batch", "sharding", "warmup", "steps")
    }
    facts = parse("training-decoder", doc, planned)[1]
    assert isinstance(facts, DecoderFacts)
    return facts


def most_off(facts: DecoderFacts) -> float:
    (curve,) = recorded().curves
    return max(abs(mine - theirs) for mine, theirs in zip(facts.losses, curve.losses, strict=True))


def test_two_ranks_over_gloo_have_the_recorded_losses() -> None:
    found = trained()
    curve = curve_of(found)
    assert curve is not None
    assert most_off(found) <= curve.tolerance
    assert found.collective_by == "waits"
    assert not found.on_gpus


@pytest.mark.rest
def test_divided_parameters_and_one_rank_have_the_same_losses_and_a_smaller_batch_has_not() -> None:
    (curve,) = recorded().curves
    assert most_off(trained(sharding="fsdp")) <= curve.tolerance
    assert most_off(trained(ranks=1, hosts=["localhost:1"], batch=8)) <= curve.tolerance
    half = trained(ranks=1, hosts=["localhost:1"], batch=4)  # what ranks learn that share no gradients
    assert curve_of(half) is None
    assert most_off(half) > 20 * curve.tolerance


def planned(site: Topology, words: str, fabric: str = "tcp10") -> Plan:
    return plan_of(site, ("training",), fabric, options={"decoders": words})


def judged(id_: str, spoil: Callable[[dict[str, Any]], object], site: Topology, words: str, **more: Any) -> Judgement:
    """The judgement on the first job of two ranks, whose report `spoil` changes."""
    return all_judged(id_, spoil, site, words, **more)[0]


def all_judged(
    id_: str, spoil: Callable[[dict[str, Any]], object], site: Topology, words: str, **more: Any
) -> list[Judgement]:
    plan = planned(site, words)
    m = next(m for m in plan.measurements if m.kind == "training-decoder" and m.params["ranks"] == 2)
    doc = RECORDING["document"]
    lines = doc["stdout"].splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith('{"world_size"'))
    report = json.loads(lines[at])
    report.update(more)
    spoil(report)
    lines[at] = json.dumps(report)
    samples, facts = parse("training-decoder", {**doc, "stdout": "\n".join(lines)}, m.params)
    mine = criterion(verdict_of(site, plan, [result(m, samples, facts=facts)]), id_).judgements
    return [j for j in mine if m.id in j.evidence]


def tiny(spoil: Callable[[dict[str, Any]], object] = lambda _: None) -> Judgement:
    return judged("tn.losses", spoil, lab(("gpu1",)), "tiny")


def test_losses_are_held_against_the_recorded_ones_also_on_processors() -> None:
    assert tiny().verdict == "pass"
    wrong = tiny(lambda r: r["losses"].__setitem__(7, r["losses"][7] + 0.001))
    assert (wrong.verdict, "(step 8), 0.0005 is allowed" in wrong.reason) == ("fail", True)
    rate = judged("tn.tflops", lambda _: None, lab(("gpu1",)), "tiny")
    assert (rate.verdict, rate.reason_code) == ("not-measured", "virtual")
    assert "collectives: " in rate.reason


def test_a_torch_without_fsdp_costs_a_decoder_that_trained_without_it_nothing() -> None:
    """Debian's 1.13, whose FSDP is another one: as in a lab's training image."""
    site, why = lab(("gpu1",)), "torch 1.13.0a0 has no fully_shard; 2.6 or later has"
    plan = plan_of(site, ("training",), options={"decoders": "tiny"})
    jobs = [m for m in plan.measurements if m.kind == "training-decoder"]
    doc = RECORDING["document"]
    lines = doc["stdout"].splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith('{"world_size"'))

    def done(m: Any, cannot: str) -> Any:
        told = {"world_size": m.params["ranks"], "sharding": m.params["sharding"], "cannot": cannot}
        told["hosts"] = [host for host in m.params["hosts"] for _ in range(int(m.params["ranks_per_node"]))]
        report = {**json.loads(lines[at]), **told, "devices": ["processor"] * int(m.params["ranks"])}
        text = [*lines[:at], json.dumps(report), *lines[at + 1 :]]
        samples, facts = parse("training-decoder", {**doc, "stdout": "\n".join(text)}, m.params)
        return result(m, samples, facts=facts)

    divided = [m for m in jobs if m.params["sharding"] == "fsdp"]
    whole = [
        m for m in jobs if m.params["sharding"] == "ddp" and m.params["ranks"] == json.loads(lines[at])["world_size"]
    ]
    assert divided
    assert whole
    mine = [done(m, why) for m in divided]
    for id_ in ("tn.losses", "tn.tflops"):
        alone = criterion(verdict_of(site, plan, mine), id_).judgements
        assert {j.verdict for j in alone if j.evidence[0] in {m.id for m in divided}} == {"not-measured"}
        beside = criterion(verdict_of(site, plan, [*mine, *(done(m, "") for m in whole)]), id_).judgements
        found = [j for j in beside if j.evidence and j.evidence[0] in {m.id for m in divided}]
        assert {j.verdict for j in found} == {"not-applicable"}
        assert found[0].reason == f"{why}; the same decoder trained without it"


def test_a_torch_whose_fsdp_cannot_even_be_imported_is_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> Any:
        raise ValueError(f"mutable default in {name}")  # 1.13 with Python 3.11

    monkeypatch.setattr(train_decoder.importlib, "import_module", imported)
    with pytest.raises(CannotTrain, match=r"torch 1\.13\.0a0 has no fully_shard; 2\.6 or later has"):
        train_decoder.divided(SimpleNamespace(__version__="1.13.0a0"), None, None, False)


def gpus() -> Topology:
    site = hardware(("gpu1",))
    return site.model_copy(update={"nodes": tuple(
        n.model_copy(update={"bom": n.bom.model_copy(update={"gpu_count": 2, "gpu_model": H100})}) for n in site.nodes
    )})  # fmt: skip


def big(tflops: float, name: str = "decoder-1b", gpu: str = H100) -> dict[str, Any]:
    """The report of two GPUs that reach so much each."""
    shape, batch = DECODERS[name], {"decoder-1b": 8, "decoder-8b": 2}[name]
    rate = tflops * 1e12 * 2 / shape.flops
    return {
        "model": name, "precision": "bf16", "batch": batch, "context": shape.context,
        "flops_per_token": shape.flops, "sharding": "fsdp" if shape.sharded else "ddp",
        "parameters": shape.parameters, "counted": shape.parameters, "tokens_per_s": [rate] * 35,
        "step_s": [batch * 2 * shape.context / rate] * 35, "devices": [f"GPU 0000:{n}b:00.0 {gpu}" for n in (1, 2)],
        "collective_share": [0.1], "collective_by": "kernels", "products": {"bfloat16": 113}, "tf32": False,
    }  # fmt: skip


@pytest.mark.parametrize("gpu", [H100, "NVIDIA H200"])
@pytest.mark.parametrize(
    ("name", "tflops", "verdict"),
    [("decoder-1b", 520.0, "pass"), ("decoder-1b", 350.0, "pass"), ("decoder-1b", 340.0, "fail"),
     ("decoder-8b", 265.0, "pass"), ("decoder-8b", 255.0, "fail"), ("decoder-1b", 1200.0, "not-measured")],
)  # fmt: skip
def test_a_gpu_is_held_against_its_peak(name: str, tflops: float, verdict: str, gpu: str) -> None:
    """0.35 of 989 TFLOP/s; of the decoder that computes every layer twice 3/4 of that. GPUs of one peak: one bound."""
    more = big(tflops, name, gpu)
    found = judged("tn.tflops", lambda _: None, gpus(), name.removeprefix("decoder-"), **more)
    assert found.verdict == verdict, found.reason
    assert f"{tflops:.4g} TFLOP/s of the model" in found.reason
    published = f"{tflops / 511.7:.2f} of the 511.7 to 539.8 TFLOP/s of NVIDIA Cluster Readiness Engine"
    assert (published in found.reason) is (gpu == H100)
    losses = judged("tn.losses", lambda _: None, gpus(), name.removeprefix("decoder-"), **more)
    assert (losses.verdict, "no curve is recorded" in losses.reason) == ("not-measured", True)


def test_the_gpus_of_a_decoder_are_looked_at_too() -> None:
    jobs = {m.id: m.criteria for m in planned(gpus(), "tiny,1b").measurements if m.kind == "training-decoder"}
    assert {id_: "tn.clocks" in criteria for id_, criteria in jobs.items()} == {id_: "-1b-" in id_ for id_ in jobs}
    assert any("-1b-" in id_ for id_ in jobs)
    devices = [copies.gpu(n, address=f"0000:{n}b:00.0") for n in (1, 2)]
    well, hot = copies.watch(devices[0]), copies.watch(devices[1], reasons={"hw_thermal_slowdown": 1.0})
    found = all_judged("tn.clocks", lambda _: None, gpus(), "1b", **big(400.0), watch=[well, hot])
    assert {j.subject: j.verdict for j in found} == {"gpu1, GPU 0000:1b:00.0": "pass", "gpu1, GPU 0000:2b:00.0": "fail"}


def test_what_is_planned_and_what_is_left_out_in_words() -> None:
    jobs = [m.id for m in planned(lab(), "tiny").measurements if m.kind == "training-decoder"]
    assert jobs == [
        "training-decoder.decoder-tiny-ddp.1", "training-decoder.decoder-tiny-ddp.2",
        "training-decoder.decoder-tiny-fsdp.2", "training-decoder.decoder-tiny-ddp.4",
        "training-decoder.decoder-tiny-fsdp.4",
    ]  # fmt: skip
    none = planned(lab(), "8b")
    assert any("declares no GPU" in left.why for left in none.left_out)
    assert any("none was asked for" in left.why for left in plan_of(lab(), ("training",)).left_out)
    with pytest.raises(PlanError, match="unknown decoder '70b'"):
        planned(lab(), "70b")


def test_sizes_and_operations_are_those_of_the_formula() -> None:
    assert [round(shape.parameters / 1e9, 2) for shape in DECODERS.values()] == [0.0, 1.06, 8.03]
    shape = DECODERS["decoder-8b"]
    assert shape.flops / (6 * shape.parameters) == pytest.approx(1.069, abs=0.001)
    assert shape.flops == 6 * (shape.parameters - 128256 * 4096) + 12 * 32 * 4096 * 4096


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r["losses"].pop(),
        lambda r: r.update(loss_finite=False),
        lambda r: r.update(parameters=5),
        lambda r: r.update(counted=5),
        lambda r: r.update(flops_per_token=1),
        lambda r: r.update(world_size=1),
        lambda r: r["tokens_per_s"].__setitem__(0, 1e9),
        lambda r: r.update(cannot="CUDA is not here"),
        lambda r: r.update(hosts=["gpu1", "gpu2"]),
        lambda r: r.update(hosts=["gpu1"]),
        lambda r: r.update(devices=["GPU 0000:17:00.0 NVIDIA H100"] * 2),
        lambda r: r.update(devices=["GPU 0000:17:00.0 X", "GPU 0000:18:00.0 X"], others=[[0.0, 0.0], [1.0, 2e9]]),
        lambda r: r.update(products={"float32": 14, "bfloat16": 1}),
        lambda r: r.update(products={}),
        lambda r: r.update(ranks_agree=False),
        lambda r: r.update(watch=[{}]),
    ],
)
def test_what_does_not_add_up_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ParseError):
        tiny(spoil)
