"""RDMA planned, judged and localised: what works is judged in a rehearsal too, rates and latencies only on hardware."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.rdma_case import CONTAINERS, TRANSPORT, VM_LAB, VM_PLAN, machines, rdma, vms
from tests.support.site import (
    ALL,
    REAL,
    REAL_FACTS,
    criterion,
    healthy,
    healthy_rdma,
    plan_of,
    result,
    verdict_of,
    with_value,
)
from validation.model import Failure, Measurement, Plan, Result, Topology, VerdictDoc
from validation.rules.bounds import BOTH_WAYS, bounds_of
from validation.rules.fabric import fabric_names, load_fabric


def failed(m: Measurement, fault: str, at: str = "", towards: str = "", words: str = "it failed") -> Result:
    failure = Failure(code=fault, at=at, towards=towards, words=words)
    return result(m, status="failed", error=f"{at}: {words}" if at else words, failure=failure)


def judged(spoil: Any = None, plan: Plan = VM_PLAN, topology: Topology = VM_LAB, fabric: str = "roce40") -> VerdictDoc:
    def one(m: Measurement) -> Result:
        return (spoil(m) if spoil and m in rdma(plan) else None) or healthy(m)

    return verdict_of(topology, plan, [one(m) for m in plan.measurements], fabric=fabric)


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_between_emulated_machines_the_plan_is_short_and_complete() -> None:
    mine = rdma(VM_PLAN)
    assert {n for m in mine for n in m.nodes} == {"gpu1", "gpu2"}
    counts = Counter((m.kind, m.params.get("op"), m.params.get("bidirectional")) for m in mine)
    assert counts["rdma-first-light", None, None] == 2
    assert counts["rdma-bandwidth", "read", None] == counts["rdma-bandwidth", "send", None] == 2
    assert counts["rdma-bandwidth", "write", None] == 4  # two other sizes in one direction
    assert counts["rdma-bandwidth", "write", 1] == 1
    assert counts["rdma-ucx", None, None] == 2
    assert {m.params["op"] for m in mine if m.kind == "rdma-latency"} == {"write", "read", "send"}
    assert {m.params["cm"] for m in mine if "cm" in m.params} == {"socket", "rdma_cm"}
    assert sum(m.estimated_s for m in mine) < 90
    assert any("head/fab0, client1/fab0" in left.why and "rdma: false" in left.why for left in VM_PLAN.left_out)


def test_hardware_is_measured_in_full() -> None:
    plan = plan_of(REAL, TRANSPORT, "roce100")
    mine = [m for m in rdma(plan) if m.nodes == ("gpu1", "gpu2")]
    runs = Counter((m.params["op"], m.params.get("bidirectional", 0)) for m in mine if m.kind == "rdma-bandwidth")
    assert runs == {("write", 0): 5, ("read", 0): 3, ("send", 0): 3, ("write", 1): 1, ("read", 1): 1, ("send", 1): 1}
    assert 80 < sum(m.estimated_s for m in mine) < 130
    timed = [m for m in mine if m.kind == "rdma-bandwidth" and m.params["size_bytes"]]
    assert {(m.params["size_bytes"], m.params["qps"], m.params["seconds"]) for m in timed} == {(8388608, 4, 3)}
    assert not any("RDMA" in left.why for left in plan.left_out)


def test_ids_are_unique_and_every_run_serves_the_functional_criterion() -> None:
    for plan in (VM_PLAN, plan_of(REAL, TRANSPORT, "roce100")):
        ids = [m.id for m in plan.measurements]
        assert len(ids) == len(set(ids))
        for m in rdma(plan):
            assert "tr.rdmafn" in m.criteria
            usual = m.params.get("size_bytes") in (65536, 8388608)
            assert ("tr.rdmabw" in m.criteria) == (m.kind == "rdma-bandwidth" and usual)
            assert ("tr.rdmalat" in m.criteria) == (m.kind == "rdma-latency")
            assert m.timeout_s > m.estimated_s


def test_a_fabric_without_rdma_plans_none() -> None:
    assert not rdma(plan_of(VM_LAB, ALL, "tcp10"))


def test_ports_without_rdma_alone_leave_rdma_out_and_say_so() -> None:
    plan = plan_of(vms(1, CONTAINERS), TRANSPORT, "roce40")
    assert not rdma(plan)
    assert any("fewer than two nodes" in left.why for left in plan.left_out)


# --- works ------------------------------------------------------------------------------------------------------------


def test_a_rehearsal_judges_that_it_works_and_reports_rates_unjudged() -> None:
    verdict = judged()
    works = criterion(verdict, "tr.rdmafn")
    assert (works.verdict, works.coverage) == ("pass", "2/2 pairs")
    assert "rxe_fab0, RoCE v2, GID index 1, RDMA MTU 4096" in works.judgements[0].reason
    for name, words in (("tr.rdmabw", "Gbit/s"), ("tr.rdmalat", "us")):
        found = criterion(verdict, name)
        assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
        assert all(words in j.reason and j.value for j in found.judgements)
    assert (verdict.sign_off, verdict.outcome, verdict.exit_code) == ("REHEARSAL", "passed", 0)


def test_virtual_machines_that_are_not_emulated_are_not_judged_either() -> None:
    topology = vms(2, CONTAINERS, emulated=False)
    plan = plan_of(topology, TRANSPORT, "roce40")
    found = criterion(judged(plan=plan, topology=topology), "tr.rdmabw")
    assert (found.reason_code, {j.value for j in found.judgements}) == ("virtual", {38.5, 77.0})


@pytest.mark.parametrize(
    ("fault", "at", "towards"),
    [
        ("memlock", "gpu2", ""),
        ("gid-type", "gpu2", ""),
        ("mtu", "gpu2", ""),
        ("port-down", "gpu2", ""),
        ("no-device", "gpu2", ""),
        ("lost", "", "gpu2"),
    ],
)
def test_the_end_that_is_at_fault_is_named_even_of_two(fault: str, at: str, towards: str) -> None:
    verdict = judged(lambda m: failed(m, fault, at, towards, f"the {fault} of it"))
    works = criterion(verdict, "tr.rdmafn")
    assert (works.verdict, works.reason_code) == ("fail", "not-working")
    assert [f.subject for f in verdict.findings] == ["gpu2/fab0"]
    assert f"node gpu2: gpu2/fab0: the {fault} of it" in verdict.findings[0].text
    assert verdict.exit_code == 1
    assert "at fault: gpu2/fab0" in verdict.headline
    assert criterion(verdict, "tr.rdmabw").reason_code == "tool-failed", "a rate that nobody took is no low rate"


def test_one_failed_run_of_many_fails_the_pair() -> None:
    verdict = judged(lambda m: failed(m, "lost") if m.id.startswith("rdma-bandwidth.send.gpu1") else None)
    works = criterion(verdict, "tr.rdmafn")
    bad = [j for j in works.judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == ["gpu1/fab0>gpu2/fab0"]
    assert "1 of 11 runs fail; rdma-bandwidth.send: it failed" in bad[0].reason


def test_a_run_that_did_not_end_shows_nothing_unless_the_ends_tell_what_is_wrong() -> None:
    def late(towards: str) -> VerdictDoc:
        failure = Failure(code="lost" if towards else "other-end", towards=towards)
        return judged(lambda m: result(m, status="timeout", error="late", failure=failure) if "ucx" in m.id else None)

    assert criterion(late(""), "tr.rdmafn").reason_code == "tool-failed"
    assert late("").exit_code == 3
    assert criterion(late("gpu1"), "tr.rdmafn").reason_code == "not-working"


def test_a_result_that_the_counters_do_not_bear_out_is_a_failure() -> None:
    def refuse(m: Measurement) -> Result:
        return result(
            m, status="unparseable", error="the client's device sent 3 packets", failure=Failure(code="unproved")
        )

    assert criterion(judged(refuse), "tr.rdmafn").verdict == "fail"


def test_without_words_of_the_ends_the_matrix_tells() -> None:
    topology = vms(4, CONTAINERS)
    plan = plan_of(topology, TRANSPORT, "roce40")
    verdict = judged(lambda m: failed(m, "lost") if "gpu3" in m.nodes else None, plan, topology)
    assert [f.subject for f in verdict.findings if "tr.rdmafn" in f.criteria and f.kind == "port"] == ["gpu3/fab0"]


@pytest.mark.parametrize("fault", ["tool-missing", "tool", "stopped", ""])
def test_a_tool_that_cannot_run_says_nothing_of_rdma(fault: str) -> None:
    verdict = judged(lambda m: failed(m, fault, "gpu1"))
    assert criterion(verdict, "tr.rdmafn").reason_code == "tool-failed"
    assert verdict.exit_code == 3


@pytest.mark.parametrize(("key", "end"), [("device", "gpu1/fab0"), ("peer_device", "gpu2/fab0")])
def test_a_run_on_another_device_than_the_one_behind_the_port_proves_nothing(key: str, end: str) -> None:
    plan = plan_of(VM_LAB, ("preflight", "transport"), "roce40")

    def elsewhere(m: Measurement) -> Result | None:
        if m.kind != "rdma-first-light" or m.endpoints[0].node != "gpu1":
            return None
        found = healthy(m)
        return found.model_copy(update={"facts": {**found.facts, key: "rxe_mgmt0"}})

    assert criterion(judged(plan=plan), "tr.rdmafn").verdict == "pass"
    verdict = judged(elsewhere, plan)
    one = {j.subject: j for j in criterion(verdict, "tr.rdmafn").judgements}["gpu1/fab0>gpu2/fab0"]
    assert (one.verdict, one.reason_code) == ("not-measured", "missing-metric")
    assert f"rdma-first-light used rxe_mgmt0 of {end.split('/')[0]}, but {end} is rxe_fab0" in one.reason


def test_missing_results_are_no_pass() -> None:
    results = [healthy(m) for m in VM_PLAN.measurements if not m.id.startswith("rdma-ucx")]
    verdict = verdict_of(VM_LAB, VM_PLAN, results, fabric="roce40")
    assert criterion(verdict, "tr.rdmafn").reason_code == "missing-result"
    assert verdict.exit_code == 3


# --- rates on hardware ------------------------------------------------------------------------------------------------


def on_hardware(scale: Any = lambda m: 1.0, fabric: str = "roce40") -> VerdictDoc:
    plan = plan_of(REAL, TRANSPORT, fabric)

    def one(m: Measurement) -> Result:
        if m in rdma(plan):
            return healthy_rdma(m, scale(m))
        return healthy(m, link_gbps=39.0, facts=REAL_FACTS)

    return verdict_of(REAL, plan, [one(m) for m in plan.measurements], fabric=fabric)


def test_bandwidth_is_judged_by_pair_and_operation() -> None:
    found = criterion(on_hardware(), "tr.rdmabw")
    assert (found.verdict, found.coverage) == ("pass", "54/54 results")
    one = next(j for j in found.judgements if j.subject == "gpu1/fab0>gpu2/fab0 (write)")
    assert (one.bound.floor, round(one.bound.ceiling, 2), one.samples) == (36.0, 39.21, 4)
    both = next(j for j in found.judgements if j.subject == "gpu1/fab0>gpu2/fab0 (write, both ways)")
    assert (both.value, both.bound.floor) == (77.0, 72.0)


def test_a_slow_port_is_named_once() -> None:
    verdict = on_hardware(lambda m: 0.5 if "gpu2" in m.nodes else 1.0)
    assert criterion(verdict, "tr.rdmabw").reason_code == "below-floor"
    assert [f.subject for f in verdict.findings] == ["gpu2/fab0"]


def test_better_than_the_line_is_a_fault_of_the_measurement() -> None:
    assert criterion(on_hardware(lambda m: 1.1), "tr.rdmabw").reason_code == "above-ceiling"


def latency(us: Any, fabric: str = "roce40", nodes: int = 3) -> VerdictDoc:
    """Real machines of which each RDMA latency is `us` of the measurement."""
    topology = machines(nodes)
    plan = plan_of(topology, TRANSPORT, fabric)

    def one(m: Measurement) -> Result:
        found = healthy_rdma(m) if m in rdma(plan) else healthy(m, link_gbps=39.0, facts=REAL_FACTS)
        if m.kind != "rdma-latency":
            return found
        first = found.samples[0].model_copy(update={"value": us(m)})
        return found.model_copy(update={"samples": (first, *found.samples[1:])})

    return verdict_of(topology, plan, [one(m) for m in plan.measurements], fabric=fabric)


WITH_RDMA = [name for name in fabric_names() if load_fabric(name).needs_rdma]


@pytest.mark.parametrize("name", WITH_RDMA)
def test_latency_can_pass_on_every_rdma_fabric(name: str) -> None:
    found = criterion(latency(lambda m: 1.6, name), "tr.rdmalat")
    assert (found.verdict, found.coverage) == ("pass", "18/18 results")
    assert criterion(latency(lambda m: 60.0, name), "tr.rdmalat").reason_code == "above-maximum"


def test_a_latency_limit_that_nobody_published_is_derived_step_by_step() -> None:
    found = criterion(latency(lambda m: 2.0), "tr.rdmalat")
    bound = next(j.bound for j in found.judgements if j.subject.endswith("(write)"))
    words = "\n".join(bound.derivation)
    for step in (
        "no latency is published for roce40",
        "0.5 x the 50 us that the round trip over TCP may take",
        "= at most 25 us",
        "84 bytes at 40 Gbit/s = 0.117 us is a fault of the measurement",
        "median of the 6 pairs: 2 us; none may take more than 2 x 2 = 4 us",
    ):
        assert step in words
    assert bound.maximum == 4.0
    published = criterion(latency(lambda m: 2.0, "roce100"), "tr.rdmalat").judgements[0].bound
    assert (published.maximum, len(published.derivation)) == (2.5, 2)


def test_a_pair_that_takes_much_longer_than_the_others_fails_and_its_port_is_named() -> None:
    verdict = latency(lambda m: 4.5 if "gpu2" in m.nodes else 2.0, nodes=4)
    assert criterion(verdict, "tr.rdmalat").reason_code == "above-maximum"
    assert [(f.subject, f.criteria) for f in verdict.findings] == [("gpu2/fab0", ("tr.rdmalat",))]
    assert criterion(latency(lambda m: 3.9 if "gpu2" in m.nodes else 2.0, nodes=4), "tr.rdmalat").verdict == "pass"


def test_of_two_machines_the_slow_direction_is_found() -> None:
    one = criterion(latency(lambda m: 4.5 if m.nodes[0] == "gpu1" else 2.0, nodes=2), "tr.rdmalat")
    assert {j.subject.split(">")[0] for j in one.judgements if j.verdict == "fail"} == {"gpu1/fab0"}


def test_a_fleet_that_is_slow_as_a_whole_fails_by_the_round_trip() -> None:
    found = criterion(latency(lambda m: 26.0), "tr.rdmalat")
    assert {j.subject.split("(")[1] for j in found.judgements if j.verdict == "fail"} == {"write)", "send)"}


def test_a_latency_below_the_wire_is_a_fault_of_the_measurement() -> None:
    assert criterion(latency(lambda m: 0.16, "roce10"), "tr.rdmalat").reason_code == "above-ceiling"
    assert criterion(latency(lambda m: 0.24, "roce10"), "tr.rdmalat").verdict == "pass"


def test_bounds_of_every_profile_have_a_floor_below_their_ceiling() -> None:
    for name in fabric_names():
        fabric = load_fabric(name)
        bounds = bounds_of(fabric)
        for key in ("rdma_bandwidth", BOTH_WAYS):
            bound = bounds.get(key)
            assert (bound is None) == (not fabric.needs_rdma)
            if bound is not None:
                assert bound.floor < bound.ceiling
    assert bounds_of(load_fabric("ib-edr"))["rdma_read_latency"].maximum == 4.5
    assert bounds_of(load_fabric("roce40"))["rdma_write_latency"].maximum == 25


# --- TCP between emulated machines ------------------------------------------------------------------------------------


def tcp(rate: float, sick: str = "") -> VerdictDoc:
    def one(m: Measurement) -> Result:
        if m.kind == "tcp-bandwidth" and any(name.startswith("gpu") for name in m.nodes):
            return with_value(m, 0.02 if sick in m.nodes else rate)
        return with_value(m, 2500) if m.kind == "tcp-latency" and "gpu1" in m.nodes else healthy(m)

    return verdict_of(VM_LAB, VM_PLAN, [one(m) for m in VM_PLAN.measurements], fabric="roce40")


def test_an_emulated_machines_rate_and_latency_are_reported_and_not_judged() -> None:
    verdict = tcp(0.25)
    found = {j.subject: j for j in criterion(verdict, "tr.tcpbw").judgements}
    assert found["gpu1/fab0>gpu2/fab0"].reason.startswith("not judged: emulated fabric, measured 0.25")
    assert found["head/fab0>client1/fab0"].verdict == "pass", "containers are judged as ever"
    slow = criterion(verdict, "tr.netlat")
    assert (slow.verdict, slow.reason_code) == ("not-measured", "virtual")
    assert verdict.exit_code == 0


def test_a_slow_link_of_an_emulated_machine_is_found_and_named_all_the_same() -> None:
    verdict = tcp(0.25, sick="gpu1")
    assert criterion(verdict, "tr.tcpbw").reason_code == "below-floor"
    assert [(f.subject, f.criteria) for f in verdict.findings] == [("gpu1/fab0", ("tr.tcpbw",))]
    assert criterion(verdict, "tr.rdmafn").verdict == "pass"


def test_less_observations_are_asked_of_a_lab_and_of_emulated_machines() -> None:
    def least(topology: Topology) -> object:
        plan = plan_of(topology, TRANSPORT)
        return next(m for m in plan.measurements if m.kind == "tcp-latency").params.get("min_observations")

    assert least(VM_LAB) == 40
    assert least(vms(2, CONTAINERS, emulated=False)) == 200
    assert least(VM_LAB.model_copy(update={"lab_link": None})) is None


def test_progress_names_the_run_and_its_figure() -> None:
    from toolkit.progress import outcome, what

    both = next(m for m in rdma(VM_PLAN) if m.params.get("bidirectional"))
    assert (what(both), outcome(both, healthy(both))) == ("rdma-bandwidth.write-both", "77 Gbit/s")
    light = rdma(VM_PLAN)[0]
    assert (what(light), outcome(light, healthy(light))) == ("rdma-first-light", "6 us")


# --- the report -------------------------------------------------------------------------------------------------------


def matrices_of(topology: Topology, plan: Plan, verdict: VerdictDoc | None) -> dict[str, Any]:
    from validation.measures.fabric.pairs_figures import matrices
    from validation.report.documents import RunDocuments

    latest = {m.id: healthy(m) for m in plan.measurements}
    documents: Any = type("Documents", (RunDocuments,), {"__init__": lambda self: None, "latest": latest})()
    for name, value in (("topology", topology), ("plan", plan), ("verdict", verdict)):
        object.__setattr__(documents, name, value)
    return {m.caption.split(" in ")[0]: m for m in matrices(documents)}


def test_the_report_draws_a_matrix_of_each_operation() -> None:
    found = matrices_of(VM_LAB, VM_PLAN, judged())
    assert set(found) == {
        "TCP bandwidth", "TCP round-trip time", "RDMA write bandwidth", "RDMA read bandwidth", "RDMA send bandwidth",
        "RDMA write latency", "RDMA read latency", "RDMA send latency",
    }  # fmt: skip
    assert {m.measured for title, m in found.items() if title.startswith("RDMA")} == {2}
    assert {m.pairs for title, m in found.items() if title.startswith("RDMA")} == {2}
    figure = str(found["RDMA write bandwidth"].figure)
    assert "gpu1" in figure
    assert "client1" not in figure, "a port that carries TCP only is no hole in the matrix"
    assert "floor" not in figure, "a bound that was not applied is not drawn"
    assert "floor 36" in str(
        matrices_of(REAL, plan_of(REAL, TRANSPORT, "roce40"), on_hardware())["RDMA write bandwidth"].figure
    )
    assert matrices_of(VM_LAB, VM_PLAN, None)["RDMA read bandwidth"].measured == 2, "not judged yet"
