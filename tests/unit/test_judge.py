"""The judge: sign-off, outcomes, bounds on both sides, training."""

from __future__ import annotations

import pytest

from tests.support.site import (
    ALL,
    CRITERIA,
    LAB,
    PLAN,
    REAL,
    REAL_FACTS,
    around,
    criterion,
    healthy,
    job_samples,
    judged,
    lab,
    node,
    plan_of,
    real_results,
    result,
    results_of,
    scaled,
    spoil,
    verdict_of,
    waive_all,
)
from validation.model import Port, Sample
from validation.plan.suites import SUITES
from validation.rules.profile import load_profile

# --- sign-off ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", [False, True])
def test_a_verdict_is_what_its_own_text_gives(real):
    """Judgements are made without a look at their types: so all of them are looked at here."""
    verdict = verdict_of(REAL, plan_of(REAL), real_results(plan_of(REAL))) if real else judged(None)
    text = verdict.model_dump_json()
    again = type(verdict).model_validate_json(text, strict=True)
    assert again == verdict
    assert again.model_dump_json() == text
    assert sum(len(c.judgements) for c in verdict.criteria) > 50


def test_a_rehearsal_lists_all_criteria_and_says_why_most_are_not_measured():
    verdict = judged(None)
    assert len(verdict.criteria) == len(CRITERIA)
    codes = {c.id: (c.verdict, c.reason_code) for c in verdict.criteria}
    assert codes["rm.layout"] == codes["rm.ratio"] == ("not-measured", "not-selected")
    assert codes["tr.nccl"] == codes["tr.ncclpath"] == ("not-measured", "virtual")
    assert codes["tr.collect"] == ("not-applicable", "reported")
    assert codes["pf.pcie"] == codes["pf.numa"] == ("not-measured", "virtual")
    assert codes["tr.rdmabw"] == codes["pf.lossless"] == ("not-applicable", "not-applicable")
    assert codes["tn.intra"] == codes["tn.inter"] == ("not-measured", "virtual")
    assert all(c.reason for c in verdict.criteria)
    assert criterion(verdict, "tr.tcpbw").coverage == "12/12 pairs"
    passed = {c.id for c in verdict.criteria if c.verdict == "pass"}
    assert passed >= {"pf.bom", "pf.stack", "pf.mtu", "tr.tcpbw", "tr.netlat", "tn.short"}
    assert verdict.line.startswith(f"REHEARSAL: all {len(passed)} judged criteria pass")


def test_on_an_rdma_fabric_rdma_is_not_measured_rather_than_not_applicable():
    plan = plan_of(LAB, ALL, "roce40")
    verdict = verdict_of(LAB, plan, results_of(plan), fabric="roce40")
    assert criterion(verdict, "tr.rdmabw").reason_code == "virtual"
    assert criterion(verdict, "pf.lossless").reason_code == "virtual"


def test_healthy_hardware_is_incomplete_as_long_as_required_criteria_have_no_probe():
    plan = plan_of(REAL)
    verdict = verdict_of(REAL, plan, real_results(plan))
    assert (verdict.sign_off, verdict.outcome, verdict.exit_code) == ("INCOMPLETE", "incomplete", 3)
    assert criterion(verdict, "tr.tcpbw").verdict == "pass"
    assert "not measured: " in verdict.headline


def test_hardware_is_accepted_when_everything_passed_or_was_waived():
    plan = plan_of(REAL)
    results = real_results(plan)
    training = load_profile("training", CRITERIA, SUITES)
    waivers = waive_all(verdict_of(REAL, plan, results, profile=training))
    assert not {w.criterion for w in waivers} & {"pf.bom", "tr.tcpbw", "tn.short", "tn.intra", "tn.inter"}
    verdict = verdict_of(REAL, plan, results, waivers, profile=training)
    assert (verdict.sign_off, verdict.exit_code) == ("ACCEPTED", 0)
    assert "waived" in verdict.headline


@pytest.mark.parametrize(
    "facts",
    [
        {"virt": "docker"},
        {"virt": "systemd-nspawn"},
        {"virt": "none", "lab": "lab"},
        {"virt": "kvm"},
        {"virt": "none", "stand_ins": ["cuda"]},
    ],
)
def test_a_virtual_node_that_the_inventory_hides_is_never_accepted(facts):
    plan = plan_of(REAL)

    def hide(m):
        return healthy(m, facts={**REAL_FACTS, **facts}) if m.id == "facts.gpu2" else scaled(m)

    results = real_results(plan, spoil=hide)
    verdict = verdict_of(REAL, plan, results, waive_all(verdict_of(REAL, plan, results)))
    assert verdict.sign_off == "REHEARSAL"
    assert any(("gpu2" in note and "do not" in note) or "does not declare it" in note for note in verdict.notes)


def test_a_virtual_machine_counts_where_the_fabric_is_that_of_virtual_machines():
    apart = tuple(n.model_copy(update={"hypervisor_host": f"esx-{n.name}"}) for n in REAL.nodes)
    machines = REAL.model_copy(update={"nodes": apart})
    for fabric, expected in (("vmxnet3-10", "ACCEPTED"), ("tcp10", "REHEARSAL")):
        plan = plan_of(machines, ALL, fabric)
        results = real_results(plan, {"virt": "vmware"})
        network = load_profile("network", CRITERIA, SUITES)
        waivers = waive_all(verdict_of(machines, plan, results, fabric=fabric, profile=network))
        assert verdict_of(machines, plan, results, waivers, fabric=fabric, profile=network).sign_off == expected


def test_nodes_that_do_not_show_what_they_run_on_are_not_accepted():
    plan = plan_of(REAL, ("transport", "training"))
    results = real_results(plan)
    verdict = verdict_of(REAL, plan, results, waive_all(verdict_of(REAL, plan, results)))
    assert (verdict.sign_off, verdict.exit_code) == ("INCOMPLETE", 3)


def test_failing_hardware_is_rejected_and_a_failure_outweighs_what_is_missing():
    plan = plan_of(REAL)
    results = results_of(plan, facts=REAL_FACTS)[:-1]  # links of 1 Gbit/s on a fabric of 10
    verdict = verdict_of(REAL, plan, results)
    assert (verdict.sign_off, verdict.outcome, verdict.exit_code) == ("REJECTED", "failed", 1)
    assert verdict.missing


def test_suites_that_were_not_selected():
    plan = plan_of(LAB, ("transport",))
    verdict = verdict_of(LAB, plan, results_of(plan))
    assert (criterion(verdict, "pf.mtu").reason_code, verdict.exit_code) == ("not-selected", 0)


def test_what_the_plan_left_out_is_the_reason():
    topology = lab(("head", "client1", "gpu1"))
    plan = plan_of(topology)
    verdict = verdict_of(topology, plan, results_of(plan))
    assert "only one GPU server" in criterion(verdict, "tn.inter").reason
    assert any("only one GPU server" in left.why for left in verdict.left_out)


def test_judging_twice_gives_the_same_document():
    results = results_of(PLAN)
    assert verdict_of(LAB, PLAN, results) == verdict_of(LAB, PLAN, list(reversed(results)))


def test_the_last_result_of_a_measurement_counts():
    bad = result(PLAN.measurements[0], status="timeout", error="slow")
    assert verdict_of(LAB, PLAN, [bad, *results_of(PLAN)]).exit_code == 0
    assert verdict_of(LAB, PLAN, [*results_of(PLAN), bad]).exit_code == 3


def test_results_of_no_plan_are_ignored_and_told():
    stranger = result(PLAN.measurements[0]).model_copy(update={"measurement": "facts.gpu99"})
    verdict = verdict_of(LAB, PLAN, [*results_of(PLAN), stranger])
    assert verdict.exit_code == 0
    assert any("facts.gpu99" in note for note in verdict.notes)


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "verdict", "code"),
    [
        (0.985, "pass", "within-bounds"),
        (0.9606, "pass", "within-bounds"),  # 3 % below the truth of 0.9900
        (0.9405, "not-measured", "too-noisy"),
        (0.92, "fail", "below-floor"),
        (0.0985, "fail", "below-floor"),
        (0.993, "pass", "within-bounds"),  # within the 0.5 % slack
        (1.01, "not-measured", "above-ceiling"),
    ],
)
def test_bandwidth_against_both_sides_of_its_bound(value, verdict, code):
    found = criterion(judged(spoil("tcp-bandwidth", lambda a, b: True, value)), "tr.tcpbw")
    assert (found.verdict, found.reason_code) == (verdict, code)
    judgement = found.judgements[0]
    assert judgement.low <= judgement.value <= judgement.high
    assert judgement.bound.nominal.startswith("tcp10 on hardware")
    assert judgement.bound.derivation


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (40, "within-bounds"),
        (998, "within-bounds"),
        (1000, "too-noisy"),
        (1100, "above-maximum"),
        (-1, "above-ceiling"),
    ],
)
def test_latency_in_a_rehearsal(value, code):
    assert criterion(judged(spoil("tcp-latency", lambda a, b: True, value)), "tr.netlat").reason_code == code


def test_latency_on_hardware_is_the_published_50_us():
    plan = plan_of(REAL)
    for value, code in ((40, "within-bounds"), (60, "above-maximum")):
        verdict = judged(spoil("tcp-latency", lambda a, b: True, value), REAL, plan, facts=REAL_FACTS)
        assert criterion(verdict, "tr.netlat").reason_code == code


def test_too_few_samples_decide_nothing():
    def few(m):
        return result(m, around(0.985, 7, "Gbit/s", "tcp_bandwidth_gbps")) if m.kind == "tcp-bandwidth" else None

    assert criterion(judged(few), "tr.tcpbw").reason_code == "missing-metric"


def test_a_port_whose_declared_rate_differs_is_told():
    port = Port(interface="fab0", address="10.78.0.14", prefix=24, rate_gbps=25)
    topology = LAB.model_copy(update={"nodes": (*LAB.nodes[:3], node("gpu2", 14, ports=(port,)))})
    assert any(
        "gpu2/fab0: the inventory declares 25 Gbit/s" in n for n in judged(None, topology, plan_of(topology)).notes
    )


# --- training ---------------------------------------------------------------------------------------------------------


def training(rates, spread=0.02, count=100):
    def change(m):
        if m.kind != "training-short":
            return None
        rate = rates[m.params["label"]]
        return result(m, job_samples(m, rate, spread, count))

    return change


def test_scaling_on_virtual_nodes_is_reported_but_not_judged():
    verdict = judged(training({"1": 500, "intra": 620, "inter": 900}))
    intra = criterion(verdict, "tn.intra").judgements[0]
    assert (intra.subject, intra.reason_code) == ("gpu1", "virtual")
    assert intra.value == pytest.approx(0.62, abs=0.01)
    assert "scaling measured 0.62, not judged" in intra.reason
    assert intra.low < intra.value < intra.high
    assert criterion(verdict, "tn.inter").judgements[0].subject == "cluster"
    assert verdict.exit_code == 0


@pytest.mark.parametrize(
    ("inter", "code"), [(1900, "within-bounds"), (1700, "below-floor"), (1787, "too-noisy"), (2300, "above-ceiling")]
)
def test_scaling_on_hardware(inter, code):
    plan = plan_of(REAL)
    verdict = judged(training({"1": 500, "intra": 970, "inter": inter}), REAL, plan, facts=REAL_FACTS)
    assert criterion(verdict, "tn.intra").verdict == "pass"
    assert criterion(verdict, "tn.inter").reason_code == code


def test_scaling_without_the_single_rank_is_not_measured():
    def fail(m):
        return result(m, status="failed", error="mpirun: exit 1") if m.id == "training-short.1" else None

    verdict = judged(fail)
    assert criterion(verdict, "tn.intra").reason_code == criterion(verdict, "tn.inter").reason_code == "tool-failed"
    assert verdict.exit_code == 3


def test_spread():
    even = {"1": 500, "intra": 620, "inter": 900}
    assert criterion(judged(training(even)), "tn.short").verdict == "pass"
    plan = plan_of(REAL)
    for wide, expected in ((0.02, "pass"), (0.9, "fail")):
        verdict = judged(training(even, wide), REAL, plan, facts=REAL_FACTS)
        assert criterion(verdict, "tn.short").verdict == expected
    assert criterion(judged(training(even, count=99)), "tn.short").reason_code == "missing-metric"
    assert len(criterion(judged(None), "tn.short").judgements) == 3


def test_samples_that_are_not_finite_decide_nothing():
    def nan(m):
        if m.kind != "tcp-latency":
            return None
        # a document cannot hold it; the judge does not rely on that
        return result(m, [Sample.model_construct(metric="tcp_rtt_us", value=float("nan"), unit="us")] * 20)

    assert criterion(judged(nan), "tr.netlat").reason_code == "missing-metric"
