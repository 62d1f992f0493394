"""Conformance: a claim is confirmed by what was measured on real hardware of this site, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import LAB, PLAN, REAL, REAL_FACTS, hardware, judged
from validation.model import Bom, Bound, CriterionVerdict, Judgement, Measurement, Plan, Subject, Topology, VerdictDoc
from validation.model import Waived as WaivedModel
from validation.rules.conformance import Conformance, conformance
from validation.rules.reference import Reference, load_reference, packaged

C4140 = Bom(model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", gpu_count=4)
SITE = hardware(("gpu1", "gpu2"), bom=C4140)
CLAIMS = """document: {key: paper, title: A paper, cite: Paper 2020, founding: true}
machines:
  - {key: box, title: A box, short: box, match: {model: C4140, gpu_count: 4}}
  - {key: other, title: Another, short: another box, match: {model: C4130}}
claims:
  - id: paper.lower
    section: table 1
    statement: latency is low
    published: {value: 7, unit: us, sense: at-most, rounding: 0.5, printed: about 7 us}
    confirmed_by: {criterion: tr.local, statistic: latency}
  - id: paper.higher
    section: table 2
    statement: it scales on this machine
    machines: [box]
    published: {value: 0.9, unit: ratio, sense: at-least, rounding: 0.005, printed: ~90 %}
    confirmed_by: {criterion: tn.inter, statistic: efficiency, where: {model: resnet50}}
  - {id: paper.holds, section: table 3, statement: it holds, confirmed_by: {criterion: rm.isolate, statistic: breaches}}
  - {id: paper.never, section: table 4, statement: nobody knows, why_not: nobody measures it}
  - {id: paper.fabric, section: table 5, statement: it is fast, fabrics: [ib-fdr], why_not: nobody measures it}
  - {id: paper.box, section: table 6, statement: it is large, machines: [other], why_not: nobody measures it}
"""
OTHERS = "document: {key: rest, title: Others, cite: Others, founding: false}\nclaims:\n"
OTHERS += "  - {id: rest.one, section: x, statement: of another site, why_not: of another site}\n"


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    (tmp_path / "paper.yml").write_text(CLAIMS)
    (tmp_path / "rest.yml").write_text(OTHERS)
    return load_reference(tmp_path)


def judgement(value: float | None, low: float = 0, high: float = 0, verdict: str = "pass", **more: Any) -> Judgement:
    unit = more.pop("unit", "us")
    values: dict[str, Any] = {
        "criterion": "tr.local", "about": Subject.node("gpu1"), "verdict": verdict, "reason": "so it is",
        "reason_code": {"pass": "within-bounds", "fail": "below-floor"}.get(verdict, "tool-failed"),
        "value": value, "low": low or value, "high": high or value, "evidence": ("m1",),
        "bound": Bound(metric="x", unit=unit, source="test"),
    }  # fmt: skip
    return Judgement(**{**values, **more})


def verdict(sign_off: str = "ACCEPTED", bom: str = "pass", **judged_of: tuple[Judgement, ...]) -> VerdictDoc:
    said = {"tr.local": (), "tn.inter": (), "rm.isolate": (), "pf.bom": (judgement(None, verdict=bom),)}
    said |= {id_.replace("_", "."): judgements for id_, judgements in judged_of.items()}
    criteria = tuple(
        CriterionVerdict(
            id=id_, statement=id_, source="test", required=True, owed=True, not_owed="", coverage="1/1",
            verdict=judgements[0].verdict if judgements else "not-measured", reason_code="no-probe",
            reason="this release has no probe", judgements=judgements,
        )
        for id_, judgements in said.items()
    )  # fmt: skip
    return VerdictDoc(
        run="r", fabric="tcp10", site="s", sign_off=sign_off, outcome="passed", headline="so", planned=1, measured=1,
        missing=(), criteria=criteria, findings=(), profile=None,
    )  # fmt: skip


def plan(**params: Any) -> Plan:
    one = Measurement(
        id="m1", suite="training", kind="training-short", nodes=("gpu1",), params=params, criteria=("tn.inter",),
        estimated_s=1, timeout_s=1,
    )  # fmt: skip
    return Plan(run="r", fabric="tcp10", suites=(), measurements=(one,), rounds=(("m1",),), estimated_s=1)


def states(found: Conformance) -> dict[str, str]:
    return {line.id.partition(".")[2]: line.state for line in found.claims}


def of(
    reference: Reference, said: VerdictDoc, topology: Topology = SITE, planned: Plan | None = None
) -> dict[str, str]:
    return states(conformance(said, reference, topology, planned or plan(model="resnet50")))


@pytest.mark.parametrize(
    ("value", "low", "high", "state"),
    [
        (7.4, 7.3, 7.5, "confirmed"),  # within the rounding of what is printed
        (6.0, 5.9, 6.1, "confirmed"),
        (7.6, 7.55, 7.7, "missed"),  # though its criterion, whose bound is ours, passed
        (7.5, 7.3, 7.7, "not-measured"),  # the interval includes the limit
    ],
)
def test_the_whole_interval_reaches_the_published_figure_or_does_not(
    reference: Reference, value: float, low: float, high: float, state: str
) -> None:
    assert of(reference, verdict(tr_local=(judgement(value, low, high),)))["lower"] == state


def test_the_least_favourable_of_several_decides_and_is_shown(reference: Reference) -> None:
    three = (judgement(6.0), judgement(8.0), judgement(9.0, about=Subject.node("gpu2"), evidence=("m2",)))
    found = conformance(verdict(tr_local=three), reference, SITE, plan())
    line = found.claims[0]
    assert (line.state, line.value, line.subject, line.evidence) == ("missed", 9.0, "gpu2", ("m1", "m2"))
    assert line.reason.startswith("2 of 3: 9 us")
    assert "at most 7.5 confirms it" in line.reason
    ratios = tuple(judgement(value, unit="ratio") for value in (0.93, 0.91, 0.92))
    line = conformance(verdict(tn_inter=ratios), reference, SITE, plan(model="resnet50")).claims[1]
    assert (line.state, line.value) == ("confirmed", 0.91)


@pytest.mark.parametrize(
    ("was", "state"), [("pass", "confirmed"), ("fail", "missed"), ("not-measured", "not-measured")]
)
def test_without_a_published_figure_the_criterion_decides(reference: Reference, was: str, state: str) -> None:
    assert of(reference, verdict(rm_isolate=(judgement(None, verdict=was),)))["holds"] == state


def test_where_a_criterion_has_no_meaning_it_says_nothing_of_a_claim(reference: Reference) -> None:
    bare = judgement(None, verdict="not-applicable", reason_code="not-applicable", about=Subject.node("client1"))
    assert of(reference, verdict(rm_isolate=(bare, judgement(None))))["holds"] == "confirmed"
    assert of(reference, verdict(rm_isolate=(bare,)))["holds"] == "not-measured"


def test_a_waiver_lifts_no_claim(reference: Reference) -> None:
    waived = WaivedModel(who="A", when="2026-01-01", until="2027-01-01", why="later", was="fail")
    one = judgement(None, verdict="waived", waived=waived)
    assert of(reference, verdict(rm_isolate=(one,)))["holds"] == "missed"


@pytest.mark.parametrize("code", ["above-ceiling", "too-noisy", "tool-failed"])
def test_a_measurement_that_decides_nothing_confirms_nothing(reference: Reference, code: str) -> None:
    one = judgement(6.0, verdict="not-measured", reason_code=code)
    assert of(reference, verdict(tr_local=(one,)))["lower"] == "not-measured"


def test_another_unit_is_no_answer(reference: Reference) -> None:
    found = conformance(verdict(tr_local=(judgement(6.0, unit="ms"),)), reference, SITE, plan())
    assert (found.claims[0].state, found.claims[0].reason) == ("not-measured", "measured in ms, published in us")


def test_a_claim_of_another_fabric_or_machine_is_not_this_sites(reference: Reference) -> None:
    found = conformance(verdict(), reference, SITE, plan())
    assert {line.id: line.reason for line in found.claims if line.state == "elsewhere"} == {
        "paper.fabric": "made on ib-fdr",
        "paper.box": "made on another box",
    }
    assert (found.here, found.counts["not-measured"], sum(found.counts.values())) == (4, 4, 6)


@pytest.mark.parametrize(
    ("bom", "state"),
    [
        (C4140, "confirmed"),
        (C4140.model_copy(update={"gpu_count": 3}), "elsewhere"),
        (C4140.model_copy(update={"model": "PowerEdge XE9680"}), "elsewhere"),
        (Bom(model="PowerEdge C4140"), "elsewhere"),  # no GPU is declared
    ],
)
def test_a_machine_is_what_the_bill_of_materials_declares(reference: Reference, bom: Bom, state: str) -> None:
    said = verdict(tn_inter=(judgement(0.91, 0.905, 0.92, unit="ratio"),))
    assert of(reference, said, hardware(("gpu1", "gpu2"), bom=bom))["higher"] == state


def test_of_a_mixed_site_only_what_ran_on_the_machine_alone_counts(reference: Reference) -> None:
    one, two = SITE.nodes
    mixed = SITE.model_copy(update={"nodes": (one, two.model_copy(update={"bom": Bom(gpu_model="H100")}))})
    alone = verdict(tn_inter=(judgement(0.91, 0.905, 0.92, unit="ratio"),))
    assert of(reference, alone, mixed)["higher"] == "confirmed"
    both = judgement(0.91, 0.905, 0.92, unit="ratio", about=Subject(kind="cluster"))
    planned = plan(model="resnet50", hosts=("gpu1", "gpu2"))
    found = conformance(verdict(tn_inter=(both,)), reference, mixed, planned).claims[1]
    assert (found.state, found.reason) == ("not-measured", "tn.inter was measured, but not on box alone")
    head = plan(model="resnet50", hosts=("gpu1",))  # started from gpu2, which has GPUs too
    started = head.model_copy(
        update={"measurements": (head.measurements[0].model_copy(update={"nodes": ("gpu2", "gpu1")}),)}
    )
    assert conformance(verdict(tn_inter=(both,)), reference, mixed, started).claims[1].state == "confirmed"


def test_a_machine_that_is_declared_and_not_found_confirms_nothing(reference: Reference) -> None:
    said = verdict(bom="fail", tn_inter=(judgement(0.91, 0.905, 0.92, unit="ratio"),))
    assert of(reference, said)["higher"] == "not-measured"


def test_another_workload_confirms_nothing(reference: Reference) -> None:
    said = verdict(tn_inter=(judgement(0.91, 0.905, 0.92, unit="ratio"),))
    found = conformance(said, reference, SITE, plan(batch=32)).claims[1]
    assert (found.state, found.reason) == ("not-measured", "tn.inter was measured, but not with model resnet50")


@pytest.mark.parametrize(
    ("rate", "ranks", "state"),
    [(4520.0, 8, "confirmed"), (4400.0, 8, "missed"), (4520.0, 4, "not-measured")],
)
def test_a_published_rate_is_held_against_the_program_of_the_document(rate: float, ranks: int, state: str) -> None:
    """ResNet-50 on 8 GPUs of two C4140-K: 4500 images/s. The criterion passes from 0.95 of it on."""
    bom = Bom(
        model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", gpu_count=4, cpu_model="Xeon Gold 4116",
        gpu_root_ports=1,
    )  # fmt: skip
    site = hardware(("gpu1", "gpu2"), bom=bom)
    both = (Subject.node("gpu1").ends[0], Subject.node("gpu2").ends[0])
    said = judgement(
        rate, rate - 5, rate + 5, criterion="tn.tfcnn", unit="images/s", about=Subject(kind="group", ends=both)
    )
    found = (judgement(None, verdict="pass"), judgement(None, verdict="pass", about=Subject.node("gpu2")))
    planned = plan(model="resnet50", ranks=ranks, batch=128, precision="fp16", hosts=("gpu1", "gpu2"))
    whole = verdict(tn_tfcnn=(said,), pf_bom=found).model_copy(update={"fabric": "ib-edr"})
    [claim] = [c for c in conformance(whole, packaged(), site, planned).claims if c.id == "whitepaper.rate-resnet50-k"]
    assert claim.state == state, claim.reason


def of_more(tmp_path: Path, claim: str, said: VerdictDoc, planned: Plan) -> tuple[str, str]:
    """State and reason of one more claim, on the site with two C4140."""
    (tmp_path / "paper.yml").write_text(
        CLAIMS + f"  - {{id: paper.more, section: table 7, statement: more, {claim}}}\n"
    )
    line = conformance(said, load_reference(tmp_path), SITE, planned).claims[-1]
    assert line.id == "paper.more"
    return line.state, line.reason


HALF = (
    "published: {value: 0.5, unit: ratio, sense: at-least, printed: half}, "
    "confirmed_by: {criterion: tn.inter, statistic: rate, over: paper.rate}}\n"
    "  - {id: paper.rate, section: t, statement: a rate, why_not: of another machine, "
    "published: {value: 200, unit: us, sense: reported, printed: x}"
)


@pytest.mark.parametrize(
    ("rate", "unit", "state"),
    [
        (110.0, "us", "confirmed"),
        (90.0, "us", "missed"),
        (100.5, "us", "not-measured"),
        (110.0, "GB/s", "not-measured"),
        (110.0, "ratio", "not-measured"),
    ],
)
def test_a_value_over_what_is_printed_of_a_machine_that_is_not_there(
    tmp_path: Path, rate: float, unit: str, state: str
) -> None:
    said = verdict(tn_inter=(judgement(rate, rate - 2, rate + 2, unit=unit),))
    (tmp_path / "paper.yml").write_text(CLAIMS + f"  - {{id: paper.more, section: t, statement: more, {HALF}}}\n")
    found = conformance(said, load_reference(tmp_path), SITE, plan())
    [line] = [c for c in found.claims if c.id == "paper.more"]
    assert line.state == state, line.reason
    if state == "confirmed":
        assert line.value == pytest.approx(0.55)
        assert line.unit == "ratio"


BETTER = (
    "published: {value: 1, unit: ratio, sense: at-least, printed: better}, "
    "confirmed_by: {criterion: tn.inter, statistic: ratio, where: {network: a}, against: {network: b}}"
)


@pytest.mark.parametrize(
    ("a", "b", "state"), [(0.9, 0.8, "confirmed"), (0.7, 0.8, "missed"), (0.81, 0.8, "not-measured")]
)
def test_one_network_against_another_at_the_same_place_and_batch(
    tmp_path: Path, a: float, b: float, state: str
) -> None:
    def at(network: str, batch: int, value: float) -> Judgement:
        about = Subject.node("gpu1", f"{network}, batch {batch}")
        return judgement(value, value - 0.02, value + 0.02, unit="ratio", about=about, evidence=(network,))

    one = plan(load=("--network", "a", "--side", "8")).measurements[0]
    both = tuple(
        one.model_copy(update={"id": n, "params": {"load": ("--network", n, "--side", "8")}}) for n in ("a", "b")
    )
    planned = plan().model_copy(update={"measurements": both})
    said = verdict(tn_inter=(at("a", 32, a), at("a", 64, 0.1), at("b", 32, b)))
    found, why = of_more(tmp_path, BETTER, said, planned)
    assert found == state, why
    assert f"{a} ratio over {b} of gpu1" in why
    alone = verdict(tn_inter=(at("a", 32, a),))
    assert of_more(tmp_path, BETTER, alone, planned)[0] == "not-measured"


@pytest.mark.parametrize("other", ["none", "no value", "nothing"])
def test_one_place_without_the_other_network_is_not_left_out(tmp_path: Path, other: str) -> None:
    def at(network: str, node: str, value: float | None, low: float = 0.8) -> Judgement:
        about = Subject.node(node, f"{network}, batch 32")
        was = "not-measured" if value is None else "pass"
        code = "tool-failed" if value is None else "within-bounds"
        return judgement(value, low, 0.95, was, unit="ratio", about=about, evidence=(network,), reason_code=code)

    one = plan(load=("--network", "a", "--side", "8")).measurements[0]
    both = tuple(
        one.model_copy(update={"id": n, "params": {"load": ("--network", n, "--side", "8")}}) for n in ("a", "b")
    )
    planned = plan().model_copy(update={"measurements": both})
    left = {"none": (), "no value": (at("b", "gpu2", None),), "nothing": (at("b", "gpu2", 0.1, -0.1),)}[other]
    whole = (at("a", "gpu1", 0.9), at("b", "gpu1", 0.5, 0.5), at("a", "gpu2", 1.9))
    figure = BETTER.replace("value: 1,", "value: 0.5,")
    found, why = of_more(tmp_path, figure, verdict(tn_inter=(*whole, *left)), planned)
    assert found == "not-measured", why
    assert "gpu2" in why


@pytest.mark.parametrize(
    ("was", "code", "verdict_", "done"),
    [
        ("pass", "within-bounds", "confirmed", "confirmed"),
        ("fail", "not-equal", "missed", "missed"),
        ("not-applicable", "reported", "not-measured", "confirmed"),
        ("not-measured", "tool-failed", "not-measured", "not-measured"),
    ],
)
def test_what_decides_may_be_the_verdict_or_that_it_was_done(
    tmp_path: Path, was: str, code: str, verdict_: str, done: str
) -> None:
    said = verdict(tn_inter=(judgement(None, verdict=was, reason_code=code),))
    figure = "published: {value: 32, unit: GB/s, sense: at-most, printed: x}, "
    by = "confirmed_by: {criterion: tn.inter, statistic: x, by: "
    assert of_more(tmp_path, f"{figure}{by}verdict}}", said, plan())[0] == verdict_
    assert of_more(tmp_path, f"{by}done}}", said, plan())[0] == done


@pytest.mark.parametrize(("gpus", "state"), [(8, "confirmed"), (9, "not-measured"), (16, "not-measured")])
def test_a_claim_of_so_many_gpus_is_not_confirmed_by_fewer(tmp_path: Path, gpus: int, state: str) -> None:
    said = verdict(tn_inter=(judgement(None, verdict="not-applicable", reason_code="reported"),))
    by = f"confirmed_by: {{criterion: tn.inter, statistic: x, by: done, gpus: {gpus}}}"
    assert sum(n.bom.gpu_count for n in SITE.nodes if n.name in ("gpu1", "gpu2")) == 8
    found, why = of_more(tmp_path, by, said, plan(servers=("gpu1", "gpu2")))
    assert found == state, why
    if state == "not-measured":
        assert why == f"tn.inter was measured over 8 GPUs, not {gpus}"


EVERY = """document: {key: paper, title: A paper, cite: Paper 2020, founding: true}
claims:
  - id: paper.both
    section: figure 7
    statement: both networks converge
    published: {value: 0.92, unit: ratio, sense: at-least, printed: 92 %}
    confirmed_by: {criterion: tn.inter, statistic: accuracy, every: {model: [resnet50, inception4]}}
  - {id: paper.faster, section: figure 8, statement: faster, confirmed_by: {criterion: tn.inter, statistic: ratio}}
"""


def networks(tmp_path: Path, **values: float) -> dict[str, Any]:
    """What claims of several networks come to, each measured with its value; what is below 0.5 was reported alone."""
    (tmp_path / "paper.yml").write_text(EVERY)
    mine, jobs = [], []
    for model, value in values.items():
        said = {"verdict": "not-applicable", "reason_code": "reported"} if value < 0.5 else {}
        mine.append(judgement(value, unit="ratio", evidence=(model,), **said))
        (job,) = plan(model=model).measurements
        jobs.append(job.model_copy(update={"id": model}))
    planned = plan().model_copy(update={"measurements": tuple(jobs), "rounds": tuple((j.id,) for j in jobs)})
    found = conformance(verdict(tn_inter=tuple(mine)), load_reference(tmp_path), SITE, planned)
    return {line.id.partition(".")[2]: line for line in found.claims}


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({"resnet50": 0.93, "inception4": 0.94}, "confirmed", "all of 2"),
        ({"resnet50": 0.93, "inception4": 0.94, "vgg19": 0.7}, "confirmed", "all of 2"),
        ({"resnet50": 0.93}, "not-measured", "not measured with model inception4"),
        ({"resnet50": 0.91}, "missed", "0.91"),
        ({"alexnet": 0.95}, "not-measured", "but not with model resnet50 or inception4"),
    ],
)
def test_a_claim_of_several_networks_is_of_each_and_of_no_other(
    tmp_path: Path, values: dict[str, float], state: str, words: str
) -> None:
    line = networks(tmp_path, **values)["both"]
    assert (line.state, words in line.reason) == (state, True), line.reason


def test_what_is_reported_beside_a_verdict_does_not_keep_a_claim_from_it(tmp_path: Path) -> None:
    assert networks(tmp_path, vgg16=1.3, resnet50=0.4)["faster"].state == "confirmed"
    assert networks(tmp_path, resnet50=0.4)["faster"].state == "not-measured"


IN_A_PLAN = {"model": "model", "batch": "batch", "precision": "precision", "gpus": "ranks"}
"""What of a claim's conditions a plan of training sets, and as what."""


def test_a_claim_of_a_training_asks_for_all_of_its_conditions() -> None:
    """Scaling in fp32 is easier than in fp16, and confirmed the figure of fp16."""
    seen = 0
    for claim in packaged().claims.values():
        by = claim.confirmed_by
        if by is None or by.criterion not in ("tn.rate", "tn.intra", "tn.inter", "tn.comm", "tn.long", "tn.tfcnn"):
            continue
        asked = {**by.where, **by.every}
        lack = [key for key, name in IN_A_PLAN.items() if key in claim.conditions and name not in asked]
        wrong = [
            key for key, name in IN_A_PLAN.items()
            if key in claim.conditions and name in by.where and by.where[name] != claim.conditions[key]
        ]  # fmt: skip
        assert not lack + wrong, (claim.id, lack, wrong)
        seen += 1
    assert seen > 20


def test_a_rehearsal_confirms_and_misses_nothing(reference: Reference) -> None:
    for topology, sign_off in ((SITE, "REHEARSAL"), (LAB, "REHEARSAL")):
        said = verdict(sign_off, tr_local=(judgement(6.0),), rm_isolate=(judgement(None, verdict="fail"),), tn_inter=())
        found = conformance(said, reference, topology, plan())
        by = {line.id: line for line in found.claims}
        assert found.rehearsal
        assert by["paper.lower"].state == by["paper.holds"].state == "rehearsed"
        assert by["paper.lower"].reason.startswith("reached on virtual or emulated parts, which confirm nothing: 6 us")
        assert by["paper.holds"].reason.startswith("not reached on virtual")
        assert found.counts["confirmed"] == found.counts["missed"] == 0


def test_what_emulated_gpus_did_on_a_real_machine_confirms_nothing(reference: Reference) -> None:
    said = verdict(tr_local=(judgement(6.0),), rm_isolate=(judgement(None, evidence=("m2",)),))
    found = conformance(said, reference, SITE, plan(), emulated={"m1"})
    by = {line.id: line for line in found.claims}
    assert not found.rehearsal
    assert by["paper.lower"].state == "rehearsed"
    assert by["paper.lower"].reason.startswith("reached on virtual or emulated parts")
    assert by["paper.holds"].state == "confirmed", "no emulated GPU took part in that one"
    beside = judgement(None, verdict="fail", evidence=("m2",))  # a real node misses it, whatever emulated ones do
    said = verdict(rm_isolate=(judgement(None), beside))
    found = conformance(said, reference, SITE, plan(), emulated={"m1"})
    assert {line.id: line.state for line in found.claims}["paper.holds"] == "missed"


def test_public_figures_of_others_are_no_claims(reference: Reference) -> None:
    assert "one" not in of(reference, verdict())


def test_the_packaged_claims_of_whole_runs() -> None:
    """A rehearsal of the lab rehearses; the same on hardware confirms what passed, and no claim of a GPU."""
    lab = conformance(judged(None), packaged(), LAB, PLAN)
    assert lab.rehearsal
    assert not lab.counts["confirmed"]
    real = conformance(judged(None, REAL, facts=REAL_FACTS), packaged(), REAL, PLAN)
    assert not real.rehearsal
    assert {line.criterion for line in real.claims if line.state == "confirmed"} <= {"pf.numa"}
    for line in real.claims:
        assert line.reason, line.id
        assert line.document
        assert json.loads(line.model_dump_json())["state"] == line.state
