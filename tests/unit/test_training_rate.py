"""How fast training is judged to be: by the published rate of its machine, by its peers, or by nothing; and hours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.site import CRITERIA, criterion, hardware, job_samples, lab, real_results, result, trained
from tests.support.site import verdict_of as judged_by
from validation.measures.training.judge import hours_of
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Result, Topology
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric
from validation.rules.reference import packaged

K = Bom(
    model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", cpu_model="Xeon Silver 4116", gpu_root_ports=1,
    gpu_count=4,
)  # fmt: skip
OTHER = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=4)
PUBLISHED = {1: 626.0, 4: 2425.0, 8: 4500.0}


def site(bom: Bom) -> Topology:
    return hardware(("gpu1", "gpu2"), slots=4, bom=bom)


def plan_of(topology: Topology, **options: str) -> Plan:
    suites = ("preflight", "training")
    return make_plan("run-1", topology, load_fabric("tcp10"), CRITERIA, suites, dict(options))


def rated(
    bom: Bom | None, rates: dict[int, float], slow: str = "", share: float = 0.5, of: str = "tn.rate", **options: str
) -> CriterionVerdict:
    """The criterion of two servers that train at these images/s by number of ranks; `slow` has a share of it."""
    topology = site(bom) if bom else lab()
    plan = plan_of(topology, **options)

    def train(m: Measurement) -> Result | None:
        if m.kind != "training-short":
            return None
        rate = rates[int(str(m.params["ranks"]))] * (share if m.params["hosts"] == (slow,) else 1)
        return result(m, job_samples(m, rate, 0.01), facts=trained(m))

    return criterion(judged_by(topology, plan, real_results(plan, spoil=train)), of)


def test_the_published_machine_reaches_what_is_published_of_it() -> None:
    found = rated(K, PUBLISHED)
    assert found.verdict == "pass", found.reason
    assert [j.bound.floor for j in found.judgements if j.bound] == [0.95 * rate for rate in (626, 2425, 2425, 4500)]
    assert "whitepaper.rate-resnet50-k-4" in str(found.judgements[1].text)


def test_a_rack_at_half_speed_does_not_pass() -> None:
    found = rated(K, {ranks: rate / 2 for ranks, rate in PUBLISHED.items()})
    assert (found.verdict, found.reason_code) == ("fail", "below-floor")
    assert all(j.verdict == "fail" for j in found.judgements)


def test_of_another_machine_a_server_is_held_to_the_others() -> None:
    found = rated(OTHER, {1: 2500.0, 4: 9900.0, 8: 19000.0})
    by_subject = {j.subject: (j.verdict, j.reason_code) for j in found.judgements}
    # one rank and both servers have no peer
    assert sorted(by_subject.values()).count(("not-applicable", "reported")) == 2
    assert sorted(by_subject.values()).count(("pass", "within-bounds")) == 2
    slow = rated(OTHER, {1: 2500.0, 4: 9900.0, 8: 19000.0}, slow="gpu2", share=0.9)
    failed = [j for j in slow.judgements if j.verdict == "fail"]
    assert [j.evidence for j in failed] == [("training-short.resnet50-b128-fp16.intra.gpu2",)]
    assert "the same job on 1 other server: median 99" in str(failed[0].text)


def test_rates_of_another_program_hold_no_server_to_account() -> None:
    eight = OTHER.model_copy(update={"gpu_count": 8})
    assert any(claim.machines == ("xe9680-h100",) for claim in packaged().claims.values())
    found = rated(eight, {1: 3000.0, 4: 11000.0, 8: 21000.0})
    assert "MLPerf" not in str([j.text for j in found.judgements])
    assert found.verdict == "pass", "held against its peers"


def test_another_batch_or_precision_is_not_the_published_one() -> None:
    found = rated(K, {1: 300.0, 4: 1200.0, 8: 2300.0}, precisions="fp32")
    assert {j.verdict for j in found.judgements} == {"pass", "not-applicable"}
    assert not any("whitepaper" in str(j.text) for j in found.judgements)


def test_in_a_lab_no_rate_is_judged() -> None:
    found = rated(None, {1: 500.0, 2: 900.0, 4: 1500.0})
    assert {j.reason_code for j in found.judgements} == {"virtual"}


def test_the_published_rates_predict_the_published_hours() -> None:
    reference = packaged()
    off = []
    for machine in ("8x", "k", "m"):
        rate = reference.claim(f"whitepaper.rate-resnet50-{machine}").value
        hours = reference.claim(f"whitepaper.hours-{machine}").value
        off.append(hours_of(rate) / hours - 1)
    assert max(map(abs, off)) <= 0.024
    assert hours_of(4852) == pytest.approx(6.60, abs=0.005)


def test_hours_are_predicted_of_each_job_and_stand_beside_the_published() -> None:
    found = rated(K, PUBLISHED, of="tn.hours")
    last = found.judgements[-1]
    assert found.verdict == "not-applicable"
    assert last.value == pytest.approx(7.12, abs=0.01)
    assert last.low is not None
    assert last.high is not None
    assert last.low < 7.12 < last.high
    assert "8 x V100 SXM2, one node 6.6 h" in str(last.text)
    assert "8 ranks, ResNet-50, batch 128, fp16" in last.subject


def fits(*batches: int) -> Any:
    """tn.short of jobs at these batches, of which the larger do not fit into memory."""
    topology = site(OTHER)
    plan = plan_of(topology, batches=",".join(map(str, batches)))

    def train(m: Measurement) -> Result | None:
        if m.kind != "training-short":
            return None
        if int(str(m.params["batch"])) > 128:
            words = "out of memory: a batch of 256 images does not fit on GPU 0"
            return result(m, [], facts={**trained(m), "out_of_memory": words})
        return result(m, job_samples(m, 2500.0 * int(str(m.params["ranks"])), 0.01), facts=trained(m))

    return criterion(judged_by(topology, plan, real_results(plan, spoil=train)), "tn.short")


def test_a_batch_that_does_not_fit_is_a_result_where_a_smaller_does() -> None:
    found = fits(128, 256)
    assert found.verdict == "pass", found.reason
    full = [j for j in found.judgements if j.verdict == "not-applicable"]
    assert len(full) == 4
    assert "does not fit on GPU 0; training-short.resnet50-b128-fp16.1 did" in full[0].reason
    alone = fits(256)
    assert (alone.verdict, alone.reason_code) == ("not-measured", "missing-metric")


def test_networks_are_scaled_each_against_its_own_rank() -> None:
    topology = site(K)
    plan = plan_of(topology, models="resnet50,vgg16")
    rates = {"resnet50": 600.0, "vgg16": 300.0}

    def train(m: Measurement) -> Result | None:
        if m.kind != "training-short":
            return None
        rate = rates[str(m.params["model"])] * int(str(m.params["ranks"])) * 0.96
        rate = rate / 0.96 if m.params["ranks"] == 1 else rate
        return result(m, job_samples(m, rate, 0.005), facts=trained(m))

    found = criterion(judged_by(topology, plan, real_results(plan, spoil=train)), "tn.inter")
    assert found.verdict == "pass", found.reason
    assert [round(j.value or 0, 2) for j in found.judgements] == [0.96, 0.96]
    assert {j.subject.rpartition(", batch")[0].rpartition(", ")[2] for j in found.judgements} == {"ResNet-50", "VGG-16"}
