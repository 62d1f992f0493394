"""Samples that cannot be do not hide behind a median, and a result without its proof is none (D8, D9, D20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.remoting_documents import attempts_made
from tests.support.site import (
    LAB,
    REAL,
    REAL_FACTS,
    around,
    criterion,
    healthy,
    healthy_rdma,
    judged,
    plan_of,
    result,
    verdict_of,
)
from validation.model import Measurement, Plan, Result, Sample, Topology

TCP_BW, TCP_RTT = ("tcp_bandwidth_gbps", "Gbit/s"), ("tcp_rtt_us", "us")


def with_samples(kind: str, metric: tuple[str, str], values: Iterable[float]) -> Callable[[Measurement], Result | None]:
    """All measurements of a kind have these samples."""
    samples = [Sample(metric=metric[0], unit=metric[1], value=v) for v in values]
    return lambda m: result(m, samples) if m.kind == kind else None


def lab(id_: str, spoil: Any) -> Any:
    verdict = judged(spoil)
    assert verdict.outcome != "passed" or criterion(verdict, id_).verdict == "pass"
    return criterion(verdict, id_)


# --- D20: numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [-5.0, 0.0, 1000.0, 3.5])
def test_d20_a_rate_that_cannot_be_is_not_outvoted(odd: float) -> None:
    found = lab("tr.tcpbw", with_samples("tcp-bandwidth", TCP_BW, [0.98] * 10 + [odd] * 2))
    assert (found.verdict, found.reason_code) == ("not-measured", "above-ceiling")
    assert f"2 of 12 samples are implausible ({odd:.4g} Gbit/s" in found.reason


def test_d20_an_interval_may_carry_what_a_buffer_held_over_a_stall() -> None:
    """The lab's host is stopped by other guests, and then the link catches up."""
    assert lab("tr.tcpbw", with_samples("tcp-bandwidth", TCP_BW, [0.98] * 10 + [0.7, 1.26])).verdict == "pass"


def test_d20_on_hardware_buffers_hold_less() -> None:
    plan = plan_of(REAL, ["preflight", "transport"])

    def found(odd: float) -> Any:
        spoil = with_samples("tcp-bandwidth", TCP_BW, [9.85] * 10 + [odd])
        return criterion(judged(spoil, REAL, plan, facts=REAL_FACTS), "tr.tcpbw")

    assert found(11.0).verdict == "pass"
    assert (found(13.0).verdict, found(13.0).reason_code) == ("not-measured", "above-ceiling")


@pytest.mark.parametrize("odd", [-40.0, 0.0, 1e-9, 0.5])
@pytest.mark.parametrize("count", [2, 20])
def test_d20_a_latency_has_a_lower_side(odd: float, count: int) -> None:
    """A value in another unit, or nothing that was measured."""
    found = lab("tr.netlat", with_samples("tcp-latency", TCP_RTT, [40.0] * (20 - count) + [odd] * count))
    assert (found.verdict, found.reason_code) == ("not-measured", "above-ceiling")


@pytest.mark.parametrize("odd", [-500.0, 0.0, 1e12, 64e6, 60_000.0])
def test_d20_steps_of_training_that_cannot_be_are_no_steps(odd: float) -> None:
    for share in (1, 30, 40):
        values = [500.0 + i / 100 for i in range(100 - share)] + [odd] * share
        for id_ in ("tn.short", "tn.intra", "tn.inter"):
            found = lab(id_, with_samples("training-short", ("images_per_s", "images/s"), values))
            assert found.verdict == "not-measured", found.reason
            assert found.reason_code != "virtual", found.reason


@pytest.mark.parametrize(("kind", "id_", "code"), [("training-short", "tn.short", "missing-metric"),
                                                   ("tcp-latency", "tr.netlat", "within-bounds")])  # fmt: skip
def test_steps_ask_for_samples_only_where_the_criterion_says_so(kind: str, id_: str, code: str) -> None:
    """Of 200 steps of training none may be missing; another kind's parameter may have any name."""
    plan = plan_of(LAB)
    asked = [m.model_copy(update={"params": {**m.params, "steps": 200}}) if m.kind == kind else m
             for m in plan.measurements]  # fmt: skip
    found = criterion(judged(None, LAB, plan.model_copy(update={"measurements": tuple(asked)})), id_)
    assert found.reason_code == code


def test_d20_every_sample_of_an_exact_criterion_counts() -> None:
    wrong = lab("pf.mtu", with_samples("path-mtu", ("path_mtu_bytes", "bytes"), [9000.0] * 41 + [1500.0]))
    assert (wrong.verdict, wrong.reason_code) == ("fail", "not-equal")
    assert "1500" in wrong.reason
    assert lab("pf.mtu", with_samples("path-mtu", ("path_mtu_bytes", "bytes"), [9000.0] * 42)).verdict == "pass"


# --- RDMA -------------------------------------------------------------------------------------------------------------

RDMA_PLAN = plan_of(REAL, ["transport"], "roce100")


def rdma(change: Callable[[Measurement, Result], Result], topology: Topology = REAL, plan: Plan = RDMA_PLAN) -> Any:
    """The verdict on a site of 100 Gbit/s where results between gpu1 and gpu2 are changed."""
    found = []
    for m in plan.measurements:
        if m.kind.startswith("rdma-"):
            whole = healthy_rdma(m, 2.5)
            found.append(change(m, whole) if m.nodes == ("gpu1", "gpu2") else whole)
        else:
            found.append(healthy(m, link_gbps=99.0, facts=REAL_FACTS))
    return verdict_of(topology, plan, found, fabric="roce100")


def of_pair(verdict: Any, id_: str, words: str = "") -> Any:
    pair = f"gpu1/fab0>gpu2/fab0{words}"
    return next(j for j in criterion(verdict, id_).judgements if j.subject == pair)


def valued(kind: str, value: float) -> Callable[[Measurement, Result], Result]:
    def change(m: Measurement, whole: Result) -> Result:
        if m.kind != kind:
            return whole
        first = whole.samples[0].model_copy(update={"value": value})
        return whole.model_copy(update={"samples": (first, *whole.samples[1:])})

    return change


def test_healthy_rdma_passes() -> None:
    verdict = rdma(lambda m, whole: whole)
    for id_ in ("tr.rdmafn", "tr.rdmabw", "tr.rdmalat"):
        assert criterion(verdict, id_).verdict == "pass", criterion(verdict, id_).reason


@pytest.mark.parametrize("value", [-2.0, 0.0, 1e-6, 0.05])
def test_d20_an_rdma_latency_has_a_lower_side(value: float) -> None:
    verdict = rdma(valued("rdma-latency", value))
    found = of_pair(verdict, "tr.rdmalat", " (write)")
    assert (found.verdict, found.reason_code) == ("not-measured", "above-ceiling")


def test_d20_one_run_of_several_above_the_line_is_not_outvoted() -> None:
    def one(m: Measurement, whole: Result) -> Result:
        return valued("rdma-bandwidth", 400.0)(m, whole) if m.id.startswith("rdma-bandwidth.write-2.") else whole

    found = of_pair(rdma(one), "tr.rdmabw", " (write)")
    assert (found.verdict, found.reason_code) == ("not-measured", "above-ceiling")


def test_one_run_of_several_without_its_figure_is_not_left_out() -> None:
    def one(m: Measurement, whole: Result) -> Result:
        lacks = m.id.startswith("rdma-bandwidth.write-2.")
        return whole.model_copy(update={"samples": whole.samples[1:]}) if lacks else whole

    found = of_pair(rdma(one), "tr.rdmabw", " (write)")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "rdma-bandwidth.write-2" in found.reason


def facts_without(*keys: str, **changes: Any) -> Callable[[Measurement, Result], Result]:
    def change(m: Measurement, whole: Result) -> Result:
        facts = {k: v for k, v in {**whole.facts, **changes}.items() if k not in keys}
        return whole.model_copy(update={"facts": facts})

    return change


def test_d8_results_without_samples_or_facts_prove_nothing() -> None:
    verdict = rdma(lambda m, whole: whole.model_copy(update={"samples": (), "facts": {}}))
    found = of_pair(verdict, "tr.rdmafn")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert verdict.exit_code == 3


@pytest.mark.parametrize("key", ["device", "peer_device", "gid_index", "peer_gid_index", "active_mtu"])
def test_d8_each_end_says_what_it_used(key: str) -> None:
    for change in (facts_without(key), facts_without(**{key: None}), facts_without(**{key: ""})):
        found = of_pair(rdma(change), "tr.rdmafn")
        assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
        assert key in found.reason


def test_d8_without_samples_or_without_the_count_of_repeats() -> None:
    for kept in (slice(0, 0), slice(0, 1), slice(1, 2)):

        def less(m: Measurement, whole: Result, kept: slice = kept) -> Result:
            return whole.model_copy(update={"samples": whole.samples[kept]})

        assert of_pair(rdma(less), "tr.rdmafn").reason_code == "missing-metric"


@pytest.mark.parametrize(
    "change",
    [
        {"roce_version": "IB/RoCE v1"},
        {"peer_roce_version": ""},
        {"link_layer": "InfiniBand"},
        {"peer_link_layer": "InfiniBand"},
        {"active_mtu": 1024},
    ],
)
def test_what_contradicts_the_profile_proves_nothing(change: dict[str, Any]) -> None:
    found = of_pair(rdma(facts_without(**change)), "tr.rdmafn")
    assert found.verdict == "not-measured"
    assert next(iter(change)) in found.reason


def test_an_mtu_of_rdma_that_nobody_planned_to_read_is_not_right() -> None:
    """The path's MTU alone says nothing of the RDMA ports at its ends."""
    plan = plan_of(REAL, ["preflight"], "roce100")
    kept = tuple(m for m in plan.measurements if m.id != "rdma-ports.gpu2")
    cut = plan.model_copy(update={"measurements": kept, "rounds": tuple((m.id,) for m in kept)})
    found = [healthy(m, facts=REAL_FACTS) for m in kept]
    judged = criterion(verdict_of(REAL, cut, found, fabric="roce100"), "pf.mtu").judgements
    assert {j.verdict for j in judged if "gpu2" in j.subject} == {"not-measured"}


# --- D9: counts -------------------------------------------------------------------------------------------------------

REMOTING = plan_of(LAB, ["remoting"])
WHO: dict[str, Any] = {"emulated": True, "engine": "reference", "engine_release": "1"}


def tried(*breached: str, count: float | None = None, unit: str = "count", **changes: Any) -> Any:
    """rm.isolate of gpu1, whose attempts ended so."""
    facts = {**WHO, "type": "isolation", "server": "gpu1", "attempts": attempts_made(*breached), **changes}
    value = float(len(breached)) if count is None else count
    samples = [Sample(metric="breaches", value=value, unit=unit)]
    found = []
    for m in REMOTING.measurements:
        if m.kind == "remoting-isolate":
            found.append(result(m, samples, facts=facts))
    judged = criterion(verdict_of(LAB, REMOTING, found), "rm.isolate").judgements
    return next(j for j in judged if j.subject == "gpu1")


def test_d9_attempts_that_were_refused_pass_and_a_breach_fails() -> None:
    assert tried().verdict == "pass"
    bad = tried("no token")
    assert (bad.verdict, bad.reason_code) == ("fail", "above-maximum")
    assert "no token" in bad.reason


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"attempts": attempts_made("no token")}, "contradict"),
        ({"attempts": attempts_made(elsewhere="")}, "a connection from gpu2"),
        ({"attempts": attempts_made(elsewhere="gpu3")}, "a connection from gpu2"),
        ({"attempts": attempts_made()[::-1]}, "order"),
        ({"attempts": [*attempts_made(), {**attempts_made()[0], "name": "extra"}]}, "extra"),
        ({"attempts": [{**attempts_made()[0], "cuda": None, "strange": 0}, *attempts_made()[1:]]}, "memory beyond"),
        ({"attempts": []}, "memory beyond the part"),
        ({"count": 1.0}, "contradict"),
        ({"count": 5.0}, "contradict"),
        ({"unit": "breaches"}, "breaches"),
    ],
)
def test_d9_facts_that_contradict_the_count_or_lack_an_attempt(how: dict[str, Any], words: str) -> None:
    found = tried(**how)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
    assert words in found.reason


def test_d9_a_count_in_another_unit_beside_the_right_one_is_no_pass() -> None:
    m = next(m for m in REMOTING.measurements if m.kind == "remoting-fraction")
    samples = [Sample(metric="memory_error_mib", value=v, unit=u) for v, u in ((0, "MiB"), (4096, "KiB"))]
    judged = criterion(verdict_of(LAB, REMOTING, [result(m, samples)]), "rm.memory").judgements
    mine = next(j for j in judged if j.evidence == (m.id,))
    assert (mine.verdict, mine.reason_code) == ("not-measured", "missing-metric")
    assert "KiB" in mine.reason


PAIRS = [{"source": a, "target": b, "gb_s": 1, "us": 2} for a, b in ((None, 0), (0, None), (0, 0))]


@pytest.mark.parametrize("change", [{"matrix": []}, {"devices": []}, {"matrix": PAIRS[:2]}], ids=str)
def test_d9_a_matrix_without_its_pairs_is_not_whole(change: dict[str, Any]) -> None:
    m = next(m for m in REMOTING.measurements if m.kind == "remoting-copy")
    device = {"name": "V100", "uuid": "GPU-0", "server": "gpu1"}
    whole = {**WHO, "type": "copies", "client": "client1", "servers": ["gpu1"], "devices": [device], "matrix": PAIRS}
    for facts, verdict in ((whole, "pass"), ({**whole, **change}, "not-measured"), ({}, "not-measured")):
        found = result(m, [Sample(metric="holes", value=0, unit="count")], facts=facts)
        judged = criterion(verdict_of(LAB, REMOTING, [found]), "rm.matrix").judgements
        assert judged[0].verdict == verdict


def test_no_count_below_zero_is_a_good_one() -> None:
    assert tried(count=-1.0).verdict == "not-measured"
    assert around(1.0, 2, "count", "x")
