"""Remoting on one machine by itself: which links are planned, what makes them, what is judged, and the curves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.remote_train_documents import train_document, train_result
from tests.support.site import CRITERIA, FACTS, REAL_FACTS, RUN, criterion, healthy, run_info
from tests.unit.test_here import one, plan_of_one
from validation.judging.run_data import RunData
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import plan_here, remoting_link_probe
from validation.measures.remoting.links_figures import links_figures
from validation.measures.remoting.train import MadeLink
from validation.model import Measurement, Plan, Result, Topology, VerdictDoc
from validation.plan.suites import PlanError, make_plan
from validation.probes.__main__ import parse as command_line
from validation.probes.shaped_link import Link, shape
from validation.report.documents import RunDocuments
from validation.rules.fabric import no_fabric
from validation.verdict.judge import judge

MINE: dict[str, Any] = {"engine": "/cache/engine"}
TORCH: dict[str, Any] = {**MINE, "torch": "2.13.0", "torch_python": "/env/bin/python", "torch_engine": "/cache/torch"}
SUITES = ("preflight", "remoting")


def planned(topology: Topology, **options: int) -> list[Measurement]:
    made = make_plan(RUN, topology, no_fabric().fabric, CRITERIA, SUITES, options)
    return [m for m in made.measurements if m.suite == "remoting"]


def test_each_rate_meets_each_delay_beside_the_loopback() -> None:
    mine = planned(one(1, **MINE))
    links = [MadeLink.of(m.params) for m in mine]
    assert links[0] == MadeLink(gbps=0, delay_us=0, rate_by="", delay_by="")
    assert {(link.gbps, link.delay_us) for link in links[1:] if link} == {
        (rate, delay) for rate in plan_here.RATES_GBPS for delay in plan_here.DELAYS_US
    }
    assert len({m.id for m in mine}) == len(links) == 10
    assert all(set(m.criteria) == {"rm.ratio", "rm.model", "rm.same"} for m in mine)
    assert len(planned(one(1, **MINE), quick=1)) == 3


@pytest.mark.parametrize(
    ("found", "made"),
    [
        ({}, {("tbf", ""), ("tbf", "relay")}),
        ({"delay_by": "netem"}, {("tbf", ""), ("tbf", "netem")}),
        ({"link_trouble": "Operation not permitted"}, {("relay", ""), ("relay", "relay")}),
    ],
)
def test_what_makes_a_link_follows_from_what_was_found(found: dict[str, Any], made: set[tuple[str, str]]) -> None:
    mine = planned(one(1, **MINE, **found))
    assert {(m.params["rate_by"], m.params["delay_by"]) for m in mine[1:]} == made
    plan = plan_of_one(one(1, **MINE, **found), *SUITES)
    assert any("a relay on loopback" in left.why for left in plan.left_out) == ("link_trouble" in found)


@pytest.mark.parametrize(
    ("gpus", "found", "why"),
    [
        (0, {}, "it has no GPU"),
        (1, {"gpu_trouble": "no NVIDIA driver: none is loaded", **MINE}, "no NVIDIA driver"),
        (1, {"engine_trouble": "missing packages: gcc"}, "no engine: missing packages: gcc"),
    ],
)
def test_what_is_lacking_is_said_and_nothing_is_measured(gpus: int, found: dict[str, Any], why: str) -> None:
    plan = plan_of_one(one(gpus, **found), *SUITES)
    assert not [m for m in plan.measurements if m.suite == "remoting"]
    assert any(why in left.why and "rm.ratio" in left.criteria for left in plan.left_out)
    with pytest.raises(PlanError, match=why):
        plan_of_one(one(gpus, **found), "remoting")


def test_the_job_is_a_call_that_its_own_probe_understands() -> None:
    topology = one(1, **MINE)
    for m in planned(topology, anyway=1):
        args = command_line(list(job_for(m, topology).probe.words))
        assert type(args.asked) is remoting_link_probe.Asked
        assert (args.asked.engine, args.asked.anyway) == ("/cache/engine", True)


def test_words_for_the_kernel() -> None:
    assert shape("near", Link(0, 0, "", "")) == []
    rated = shape("near", Link(10, 50, "tbf", "relay"))
    assert [words[:6] for words in rated] == [["root", "handle", "1:", "tbf", "rate", "10gbit"]]
    both = shape("near", Link(10, 50, "tbf", "netem"))
    assert [words[:5] for words in both] == [
        ["root", "handle", "1:", "netem", "delay"],
        ["parent", "1:1", "handle", "2:", "tbf"],
    ]
    assert "50us" in both[0]
    assert Link(10, 50, "tbf", "netem").spaces
    assert not Link(10, 50, "relay", "relay").spaces


@pytest.mark.parametrize(
    "other", [{"gbps": 1.0}, {"delay_us": 50.0}, {"rate_by": "relay"}, {"delay_by": "netem"}, {"more": 1}]
)
def test_another_link_than_planned_is_no_measurement(other: dict[str, Any]) -> None:
    m = planned(one(1, **MINE))[-1]
    document = train_document(m.params)
    parse(m.kind, document, m.params)
    document["facts"]["link"] = {**document["facts"]["link"], **other}
    with pytest.raises(ParseError):
        parse(m.kind, document, m.params)
    del document["facts"]["link"]
    with pytest.raises(ParseError):
        parse(m.kind, document, m.params)


def judged(topology: Topology, emulated: bool, spoil: Any = None) -> tuple[Plan, list[Result], VerdictDoc]:
    plan = plan_of_one(topology, *SUITES)
    results = [
        train_result(m, emulated=emulated, change=spoil) if m.kind == "remoting-train" else healthy(m)
        for m in plan.measurements
    ]
    info = run_info(topology, plan, fabric="none")
    return plan, results, judge(RunData(info, topology, plan, no_fabric().fabric, CRITERIA, results))


@pytest.mark.parametrize("emulated", [True, False])
def test_the_result_is_judged_and_rates_over_made_links_are_reported(emulated: bool) -> None:
    _, _, verdict = judged(one(1, emulated=emulated, **MINE), emulated)
    assert criterion(verdict, "rm.same").verdict == "pass"
    ratio = criterion(verdict, "rm.ratio")
    assert (ratio.verdict, ratio.reason_code) == ("not-applicable", "reported")
    assert ("emulated" in ratio.reason) == emulated
    subjects = {str(j.subject) for j in ratio.judgements}
    assert len(subjects) == len(ratio.judgements) == 30
    assert "new, 25 Gbit/s, 500 us each way, batch 128" in subjects
    assert all("loopback" in j.subject or "each way" in j.subject for j in criterion(verdict, "rm.model").judgements)


def test_other_bits_over_one_link_fail_and_name_it() -> None:
    def spoil(turn: int, way: str, batch: int, report: dict[str, Any]) -> None:
        if (turn, way, batch) == (2, "remote", 8):
            report["weights_sha256"] = "f" * 64

    _, _, verdict = judged(one(1, **MINE), False, spoil)
    same = criterion(verdict, "rm.same")
    assert same.verdict == "fail"
    assert "each way" in str(same.judgements[-1].subject)
    assert verdict.outcome == "failed"


def documents(topology: Topology, lost: str = "") -> RunDocuments:
    plan, results, verdict = judged(topology, True)
    kept = [r for r in results if not (lost and r.measurement.endswith(lost))]
    return RunDocuments(
        info=run_info(topology, plan, fabric="none"), topology=topology, plan=plan, fabric=no_fabric().fabric,
        results=tuple(kept), unplanned=(), torn=None, verdict=verdict, raw={}, catalogue={c.id: c for c in CRITERIA},
    )  # fmt: skip


def test_curves_by_rate_delay_and_batch_with_every_number_in_a_table() -> None:
    by_rate, by_delay, by_batch = links_figures(documents(one(1, emulated=True, **MINE), "10gbps-50us"))
    assert [figure.id for figure in (by_rate, by_delay, by_batch)] == ["links", "links-delay", "links-batch"]
    assert "not a GPU's figures" in by_rate.caption
    assert "tbf" in by_rate.caption
    assert by_rate.table
    assert len(by_rate.table.rows) == 9 * 3 + 1
    lost = next(row for row in by_rate.table.rows if row[0] == "10 Gbit/s, 50 us each way")
    assert lost[3:5] == ("not measured", "no result was recorded")
    assert "500 us each way, predicted: 0.970 at 1" in str(by_rate.svg)
    assert "1 Gbit/s, measured: 0.970 at 50, 0.970 at 500" in str(by_delay.svg)
    assert "loopback, measured: 0.970 at 8, 0.970 at 32, 0.970 at 128" in str(by_batch.svg)
    assert "1 Gbit/s, 500 us each way, predicted" in str(by_batch.svg)


def test_without_a_measurement_there_is_its_reason_and_without_a_plan_nothing() -> None:
    (empty,) = links_figures(replace(documents(one(1, emulated=True, **MINE)), results=()))
    assert empty.empty == "Not measured: no result was recorded."
    assert links_figures(documents(one(0))) == ()


# --- by PyTorch --------------------------------------------------------------------------------------------------


def test_a_machine_with_pytorch_trains_the_documents_network_over_the_same_links() -> None:
    mine = planned(one(1, **TORCH))
    by_torch = [m for m in mine if "load" in m.params]
    assert [MadeLink.of(m.params) for m in by_torch] == [MadeLink.of(m.params) for m in mine if "load" not in m.params]
    assert {m.criteria for m in by_torch} == {("rm.ratio", "rm.same")}
    assert {m.params["batches"] for m in by_torch} == {("32", "64", "128")}
    assert {m.params["batches"] for m in planned(one(1, emulated=True, **TORCH)) if "load" in m.params} == {
        ("2", "8", "32")
    }
    assert len(planned(one(1, **TORCH), quick=1)) == 6
    plan = plan_of_one(
        one(1, **{**MINE, "torch_engine_trouble": "PyTorch 2.13.0 of /env/bin/python finds no GPU"}), *SUITES
    )
    assert any(left.why.endswith("PyTorch 2.13.0 of /env/bin/python finds no GPU") for left in plan.left_out)


@pytest.mark.parametrize("emulated", [True, False])
def test_server_and_program_of_pytorch_are_of_one_python_and_stand_on_one_processor_where_a_gpu_is_emulated(
    emulated: bool,
) -> None:
    topology = one(1, emulated=emulated, **TORCH)
    m = next(m for m in planned(topology) if "load" in m.params)
    asked = command_line(list(job_for(m, topology).probe.words)).asked
    assert type(asked) is remoting_link_probe.Asked
    server = remoting_link_probe.server_words(asked, emulated)
    assert server[:3] == ["/env/bin/python", "-I", "/cache/torch/bin/elastic-ai-torchserver"]
    assert server[3:5] == ["--device", "cpu" if emulated else "cuda"]
    ways = remoting_link_probe.commands(asked, "GPU-7", emulated, "192.0.2.2:7", "/proc/1/fd/3")
    assert ("--processor" in ways["native"], "OMP_NUM_THREADS=1" in ways["native"]) == (emulated, emulated)
    assert "ELASTIC_AI_TORCH_SERVERS=192.0.2.2:7" in ways["remote"]
    assert not any(word.startswith("ELASTIC_AI_TORCH") for word in ways["native"])
    assert "PYTHONPATH=/cache/torch/python" in ways["remote"]


def test_curves_by_pytorch_stand_beside_those_of_the_small_network() -> None:
    figures = links_figures(documents(one(1, emulated=True, **TORCH)))
    assert [figure.id for figure in figures] == [
        "links", "links-delay", "links-batch", "links-torch", "links-delay-torch", "links-batch-torch",
    ]  # fmt: skip
    by_torch = figures[3]
    assert by_torch.caption.startswith("ResNet-50 by PyTorch trained on one GPU")
    assert "predicts" not in by_torch.caption
    assert "predicted" not in str(by_torch.svg)
    assert by_torch.table
    assert len(by_torch.table.rows) == 10 * 3
    assert by_torch.table.head[0] == "Link, each way"


@pytest.mark.parametrize(
    ("ratio", "emulated", "wanted"), [(0.95, False, "pass"), (0.85, False, "fail"), (0.85, True, "not-applicable")]
)
def test_pytorch_on_a_gpu_keeps_nine_tenths_over_25_gbit_s(ratio: float, emulated: bool, wanted: str) -> None:
    topology = one(1, emulated=emulated, **TORCH)
    plan = plan_of_one(topology, *SUITES)
    slow = dict.fromkeys((2, 8, 32, 64, 128), ratio)
    facts = {**FACTS, **({} if emulated else REAL_FACTS)}
    results = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    results += [healthy(m) for m in plan.measurements if m.kind not in ("facts", "remoting-train")]
    results += [
        train_result(m, emulated=emulated, ratios=slow) for m in plan.measurements if m.kind == "remoting-train"
    ]
    info = run_info(topology, plan, fabric="none")
    verdict = judge(RunData(info, topology, plan, no_fabric().fabric, CRITERIA, results))
    by = {j.about.op: j.verdict for j in criterion(verdict, "rm.ratio").judgements}
    judged_ones = {op for op, found in by.items() if found != "not-applicable"}
    if not emulated:
        assert judged_ones == {
            f"25 Gbit/s, {delay:g} us each way, ResNet-50 by PyTorch, batch {batch}"
            for delay in (0, 50) for batch in (32, 64, 128)
        }  # fmt: skip
    assert {by[op] for op in judged_ones} == ({wanted} if judged_ones else set())
    assert criterion(verdict, "rm.ratio").verdict == wanted
