"""Each known way to a vacuous PASS, and that none of them ends in a pass or in exit code 0 here."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.site import (
    CRITERIA,
    LAB,
    PLAN,
    criterion,
    judged,
    lab,
    plan_of,
    result,
    results_of,
    run_info,
    verdict_of,
    with_value,
)
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.model import Plan, Sample
from validation.plan.suites import PlanError, make_plan
from validation.rules.fabric import load_fabric

HEALTHY = results_of(PLAN)


def test_the_healthy_lab_passes_so_that_the_rest_of_this_file_means_something():
    verdict = verdict_of(LAB, PLAN, HEALTHY)
    assert verdict.outcome == "passed", verdict.headline
    assert verdict.exit_code == 0
    assert verdict.sign_off == "REHEARSAL"
    assert not verdict.findings
    assert {c.id for c in verdict.criteria if c.verdict == "pass"} == {
        "pf.bom", "pf.stack", "pf.ncclenv", "pf.mtu", "tr.tcpbw", "tr.netlat", "tr.ncclports", "tn.short",
        "pf.ports", "pf.state", "tr.tcploss",
    }  # fmt: skip


KINDS = sorted({m.kind for m in PLAN.measurements})


def about(kind: str) -> set[str]:
    """Criteria that a kind serves here: not those of GPUs, which these nodes have none of, whatever went wrong."""
    served = {c for m in PLAN.measurements if m.kind == kind for c in m.criteria}
    whole = judged(lambda m: None)
    return {id_ for id_ in served if criterion(whole, id_).verdict != "not-applicable"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", ["failed", "unparseable"])
def test_benchmark_crashed_on_every_node(kind, status):
    verdict = judged(lambda m: result(m, status=status, error="crashed") if m.kind == kind else None)
    assert verdict.exit_code == 3
    for id_ in about(kind):
        assert criterion(verdict, id_).verdict == "not-measured"
        assert criterion(verdict, id_).reason_code == "tool-failed"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "facts"])
def test_results_without_metrics(kind):
    verdict = judged(lambda m: result(m) if m.kind == kind else None)
    assert verdict.exit_code == 3
    for id_ in about(kind):
        assert criterion(verdict, id_).reason_code == "missing-metric"


def test_facts_without_content_confirm_nothing():
    verdict = judged(lambda m: result(m) if m.kind == "facts" else None)
    assert verdict.exit_code == 3
    assert criterion(verdict, "pf.bom").verdict == criterion(verdict, "pf.stack").verdict == "not-measured"


def test_one_of_several_lacks_the_metric():
    one = "tcp-bandwidth.client1-fab0.gpu2-fab0"

    def spoil(m):
        return result(m, [Sample(metric="retransmits", value=0, unit="count")]) if m.id == one else None

    verdict = judged(spoil)
    tcpbw = criterion(verdict, "tr.tcpbw")
    assert verdict.exit_code == 3
    assert (tcpbw.verdict, tcpbw.reason_code, tcpbw.coverage) == ("not-measured", "missing-metric", "11/12 pairs")
    assert [j.subject for j in tcpbw.judgements if j.verdict != "pass"] == ["client1/fab0>gpu2/fab0"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stdout", ["", "\n", "380", "error: 42", "{}", "[]", '{"end": {}}', "NaN"])
def test_output_that_cannot_be_parsed(kind, stdout):
    with pytest.raises(ParseError):
        parse(kind, doc(kind, stdout))


def test_wrong_unit_is_no_value():
    def spoil(m):
        if m.kind != "tcp-bandwidth":
            return None
        return result(m, [Sample(metric="tcp_bandwidth_gbps", value=985, unit="Mbit/s")] * 12)

    verdict = judged(spoil)
    assert (verdict.exit_code, criterion(verdict, "tr.tcpbw").reason_code) == (3, "missing-metric")


def test_no_threshold_for_this_fabric(tmp_path):
    fabric = load_fabric("tcp10").model_copy(update={"tcp_bandwidth": None, "tcp_rtt": None})
    from validation.judging.run_data import RunData
    from validation.verdict.judge import judge

    verdict = judge(RunData(run_info(LAB, PLAN), LAB, PLAN, fabric, CRITERIA, HEALTHY))
    assert verdict.exit_code == 3
    for id_ in ("tr.tcpbw", "tr.netlat"):
        assert criterion(verdict, id_).reason_code == "no-bound"


def test_undeclared_bill_of_materials_is_no_threshold_either():
    from validation.model import Bom

    nodes = tuple(n.model_copy(update={"bom": Bom(), "stack": {}}) for n in LAB.nodes)
    verdict = verdict_of(LAB.model_copy(update={"nodes": nodes}), PLAN, HEALTHY)
    assert verdict.exit_code == 3
    assert criterion(verdict, "pf.bom").reason_code == criterion(verdict, "pf.stack").reason_code == "no-bound"


@pytest.mark.parametrize("suites", [(), ("transprt",), ("burnin",)])
def test_selection_that_matches_no_test(suites):
    with pytest.raises(PlanError):
        plan_of(LAB, suites)


def test_suite_that_would_measure_nothing():
    with pytest.raises(PlanError, match="gpu_servers"):
        plan_of(lab(["head", "client1"]), ("training",))
    with pytest.raises(PlanError, match="transport would measure nothing"):
        plan_of(lab(["gpu1"]), ("preflight", "transport"))


def test_criteria_that_match_nothing_cannot_be_planned():
    with pytest.raises(PlanError):
        make_plan("r", LAB, load_fabric("tcp10"), (), ("preflight", "transport"))


def test_a_plan_of_nothing_is_no_pass():
    empty = Plan(run="r", fabric="tcp10", suites=(), measurements=(), rounds=(), estimated_s=0)
    assert verdict_of(LAB, empty, ()).exit_code == 3


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_below_threshold(share):
    verdict = judged(lambda m: with_value(m, 0.985 * share) if m.kind == "tcp-bandwidth" else None)
    assert (verdict.exit_code, verdict.outcome) == (1, "failed")
    assert criterion(verdict, "tr.tcpbw").reason_code == "below-floor"


def test_whole_run_timed_out():
    everything = [result(m, status="timeout", error="no answer in time") for m in PLAN.measurements]
    for results in (everything, []):
        verdict = verdict_of(LAB, PLAN, results)
        assert (verdict.exit_code, verdict.measured, len(verdict.missing)) == (3, 0, len(PLAN.measurements))
        assert not [c for c in verdict.criteria if c.verdict == "pass"]


def test_dry_run_has_no_results_or_zeros_and_neither_passes():
    assert verdict_of(LAB, PLAN, ()).exit_code == 3

    def zeros(m):
        units = {"tcp-bandwidth": ("tcp_bandwidth_gbps", "Gbit/s"), "tcp-latency": ("tcp_rtt_us", "us")}
        units |= {"path-mtu": ("path_mtu_bytes", "bytes"), "training-short": ("images_per_s", "images/s")}
        if m.kind not in units:
            return None
        metric, unit = units[m.kind]
        return result(m, [Sample(metric=metric, value=0, unit=unit)] * 100)

    verdict = judged(zeros)
    assert verdict.exit_code != 0
    for id_ in ("pf.mtu", "tr.tcpbw", "tr.netlat", "tn.short", "tn.intra", "tn.inter"):
        assert criterion(verdict, id_).verdict != "pass", id_


@pytest.mark.parametrize("index", range(0, len(PLAN.measurements), 5))
def test_a_single_worker_that_fails_withholds_the_pass(index):
    bad = PLAN.measurements[index].id
    verdict = judged(lambda m: result(m, status="failed", error="exit 1") if m.id == bad else None)
    assert (verdict.exit_code, verdict.missing) == (3, (bad,))


def test_a_reading_above_the_ceiling_is_a_fault_of_the_measurement():
    verdict = judged(lambda m: with_value(m, 9.4) if m.kind == "tcp-bandwidth" else None)
    assert (verdict.exit_code, criterion(verdict, "tr.tcpbw").reason_code) == (3, "above-ceiling")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gone=st.sets(st.sampled_from([m.id for m in PLAN.measurements]), min_size=1))
def test_any_subset_of_results_removed_never_exits_with_0(gone):
    verdict = verdict_of(LAB, PLAN, [r for r in HEALTHY if r.measurement not in gone])
    assert verdict.exit_code == 3
    assert set(verdict.missing) == gone


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    gone=st.sets(st.sampled_from([m.id for m in PLAN.measurements if m.kind not in ("facts", "cabling")]), min_size=1)
)
def test_any_subset_of_samples_removed_never_exits_with_0(gone):
    stripped = [r.model_copy(update={"samples": ()}) if r.measurement in gone else r for r in HEALTHY]
    assert verdict_of(LAB, PLAN, stripped).exit_code == 3


def test_a_missing_measurement_counts_even_where_no_criterion_looks_at_it():
    last = PLAN.measurements[-1].model_copy(update={"id": "extra.gpu1", "criteria": ("zz.unknown",)})
    plan = PLAN.model_copy(
        update={"measurements": (*PLAN.measurements, last), "rounds": (*PLAN.rounds, ("extra.gpu1",))}
    )
    verdict = verdict_of(LAB, plan, HEALTHY)
    assert (verdict.exit_code, verdict.missing) == (3, ("extra.gpu1",))
