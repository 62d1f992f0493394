"""The long test: planned where it was asked for, read whole, judged by what the document holds to it, and drawn."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import CRITERIA, criterion, hardware, lab, real_results, result, results_of, run_info
from tests.support.site import verdict_of as judged_by
from validation.kinds import KINDS, job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.training import training_long_probe
from validation.measures.training.long import LongTrainingFacts
from validation.measures.training.long_figures import long_figure
from validation.measures.training.long_outcome import IMAGES
from validation.measures.training.long_plan import UNASKED
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Result, Topology
from validation.plan.suites import PlanError, make_plan
from validation.probes.asked import make
from validation.report.documents import RunDocuments
from validation.rules.fabric import load_fabric
from validation.rules.reference import packaged
from validation.run.conflicts import conflicts

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/training-long.json").read_text())
SUITES = ("preflight", "training")
H100 = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=8)
ASKED = {"data": "/data/imagenet", "checkpoints": "/data/checkpoints"}


def site() -> Topology:
    return hardware(("gpu1", "gpu2"), slots=8, bom=H100)


def plan_of(topology: Topology, **options: Any) -> Plan:
    asked = {**ASKED, "alone": 1, **options}
    return make_plan("run-1", topology, load_fabric("tcp10"), CRITERIA, SUITES, asked)


def job_of(plan: Plan) -> Measurement:
    return next(m for m in plan.measurements if m.kind == "training-long")


def read(change: Callable[[dict[str, Any]], None] = lambda report: None) -> tuple[list[Any], Any]:
    document, params = copy.deepcopy(RECORDED["document"]), RECORDED["params"]
    report = json.loads(next(line for line in document["stdout"].splitlines() if line.startswith("{")))
    change(report)
    document["stdout"], document["facts"] = json.dumps(report), report
    return parse("training-long", document, params)


def test_a_recorded_training_is_read_whole() -> None:
    samples, facts = read()
    assert isinstance(facts, LongTrainingFacts)
    assert [s.value for s in samples if s.metric == "train_top5"] == [line.train_top5 for line in facts.curve]
    assert {s.metric: s.unit for s in samples}["hours"] == "h"
    assert facts.curve[-1].val_top1 > 0.5, "ten classes"
    assert (facts.format, facts.images, facts.classes) == ("tfrecord", 600, 10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["curve"].pop(), "2 lines of 3 epochs"),
        (lambda r: r["curve"][1].update(epoch=1), "lines of 3 epochs"),
        (lambda r: r["curve"][2].update(train_top5=0.95), "no shares of 576 images"),
        (lambda r: r["curve"][2].update(val_top1=1.0, val_top5=0.5), "no shares of 200 images"),
        (lambda r: r["curve"][0].update(rate=0.4), "is the schedule's"),
        (lambda r: r["curve"][0].update(images_per_s=1e6), "do not fit"),
        (lambda r: r["curve"][0].update(input_s=1e6), "waited"),
        (lambda r: r["curve"][0].update(loss=-1.0), "loss"),
        (lambda r: r["curve"][0].update(val_images=100), "not those of the set"),
        (lambda r: r["predicted"].update(hours=1.0), "prediction"),
        (lambda r: r.update(seconds=1.0), "less than"),
        (lambda r: r.update(steps=17), "17 steps of 32 images"),
        (lambda r: r.update(model="resnet50"), "small-resnet planned"),
        (lambda r: r.update(ranks_agree=False), "different models"),
        (lambda r: r.update(products={"bfloat16": 10}), "fp32 was asked for"),
        (lambda r: r.update(cannot="gpu2: there is no folder /data"), "gpu2: there is no folder /data"),
    ],
)
def test_what_does_not_add_up_is_refused(change: Callable[[dict[str, Any]], None], said: str) -> None:
    with pytest.raises(ParseError, match=said):
        read(change)


def test_the_plan_has_one_job_of_all_gpus_and_its_probe_understands_it() -> None:
    topology = site()
    plan = plan_of(topology, models="vgg16", epochs=10)
    m = job_of(plan)
    assert [x.kind for x in plan.measurements if x.suite == "training"] == ["training-long"]
    assert (m.params["ranks"], m.params["device"], m.params["precision"]) == (16, "gpu", "fp16")
    asked = make(training_long_probe.Asked, dict(job_for(m, topology).probe.params))
    words = training_long_probe.program(asked, "auto")
    assert words[1:5] == ["--data", "/data/imagenet", "--checkpoints", "/data/checkpoints"]
    assert words[words.index("--epochs") + 1] == "10"
    assert KINDS["training-long"].once
    assert asked.time_limit_s == 168 * 3600 - 5
    beside = plan_of(topology, alone=None, models="vgg16,resnet50", gpus="1,8,16")
    assert sum(x.kind == "training-short" for x in beside.measurements) > 5
    assert (job_of(beside).params["model"], job_of(beside).params["ranks"]) == ("vgg16", 16)
    without = make_plan("run-1", topology, load_fabric("tcp10"), CRITERIA, SUITES)
    assert not [x for x in without.measurements if x.kind == "training-long"]
    assert any(
        "toolkit validate --suite training --long" in left.why
        for left in without.left_out
        if "tn.long" in left.criteria
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"models": "resnet5"}, "did you mean resnet50"),
        ({"models": "resnet50,vgg16"}, "a long training has one of it"),
        ({"gpus": "32"}, "there are 16"),
        ({"data": "imagenet"}, "the whole path of a folder"),
        ({"checkpoints": "here"}, "--checkpoints: the whole path"),
        ({"checkpoints": ""}, "horovod_volumes"),
        ({"batches": "100000"}, "takes at least"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_runs(options: dict[str, str], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        plan_of(site(), **options)


def test_a_lab_keeps_its_checkpoints_in_memory_unless_it_is_told_otherwise() -> None:
    m = job_of(make_plan("r", lab(), load_fabric("tcp10"), CRITERIA, SUITES, {"data": "tiny", "epochs": 2, "alone": 1}))
    assert (m.params["data"], m.params["checkpoints"]) == ("tiny:folders", "/dev/shm/elastic-ai-train-long")


def rehearsed(topology: Topology, **options: Any) -> tuple[list[Measurement], list[str]]:
    """The long trainings of a plan that was asked for none, and what is said of them."""
    plan = make_plan("r", topology, load_fabric("tcp10"), CRITERIA, SUITES, options)
    said = [left.why for left in plan.left_out if "the long test" in left.why and "hours of" not in left.why]
    return [m for m in plan.measurements if m.kind == "training-long"], said


def test_a_lab_rehearses_it_on_a_tiny_set_and_keeps_nothing() -> None:
    (m,), said = rehearsed(lab(slots=2))
    assert said == ["the long test in a rehearsal: a small network on a tiny set, which is made there"]
    assert (m.params["data"], m.params["checkpoints"], m.params["ranks"]) == ("tiny:folders", "", 4)
    assert m.criteria == ("tn.long", "tn.longh")
    assert m.timeout_s < 1000
    (alone,), _ = rehearsed(lab(("head", "gpu1"), slots=2))
    assert (alone.params["ranks"], alone.params["hosts"]) == (2, ("gpu1",))
    asked = make(training_long_probe.Asked, dict(job_for(m, lab(slots=2)).probe.params))
    assert training_long_probe.program(asked, "auto")[3:5] == ["--checkpoints", ""]


@pytest.mark.parametrize("options", [{"quick": 1}, {"framework": "tensorflow"}, {"data": "tiny"}])
def test_it_is_rehearsed_by_torch_and_where_nothing_else_was_asked_for(options: dict[str, Any]) -> None:
    found, said = rehearsed(lab(), **options)
    assert [m.params["checkpoints"] for m in found] == (["/dev/shm/elastic-ai-train-long"] if "data" in options else [])
    assert said == ([] if "data" in options else [UNASKED])
    assert rehearsed(site()) == ([], [UNASKED]), "real servers have hours for it, and pictures"


def test_a_rehearsal_that_learned_is_drawn_and_called_no_long_test() -> None:
    topology = lab()
    plan = make_plan("r", topology, load_fabric("tcp10"), CRITERIA, SUITES)
    results = results_of(plan)
    said = criterion(judged_by(topology, plan, results), "tn.long")
    assert (said.verdict, said.reason_code) == ("not-measured", "virtual")
    documents = RunDocuments(
        run_info(topology, plan), topology, plan, load_fabric("tcp10"), tuple(results), (), None, None, {}, {}
    )
    figure = long_figure(documents, judged_by(topology, plan, results))
    assert figure.svg is not None
    assert "It shows the procedure and is not the long test, which is 90 epochs of 1281167 images" in figure.caption


def trained(top5: float, model: str = "resnet50", epochs: int = 90, images: int = IMAGES) -> dict[str, Any]:
    """Facts of a long training that ends with this accuracy on the training data."""
    _, facts = read()
    line = facts.curve[-1].model_copy(update={"images": images, "train_top5": top5, "train_s": 250.0})
    curve = tuple(line.model_copy(update={"epoch": at + 1}) for at in range(epochs))
    change = {"model": model, "epochs": epochs, "images": images, "classes": 1000, "curve": curve, "seconds": 24000.0}
    found: dict[str, Any] = facts.model_copy(update=change).model_dump(mode="json")
    return found


def judged(
    facts: dict[str, Any] | None, topology: Topology | None = None, of: str = "tn.long", **options: Any
) -> CriterionVerdict:
    plan = plan_of(topology or site(), **options)

    def long(m: Measurement) -> Result | None:
        failed = {} if facts else {"status": "failed", "error": "rank 3 on gpu2 ended"}
        return result(m, facts=facts or {}, **failed) if m.kind == "training-long" else None

    return criterion(judged_by(topology or site(), plan, real_results(plan, spoil=long)), of)


def test_the_accuracy_on_training_data_decides_for_the_networks_that_reach_it() -> None:
    good = judged(trained(0.93))
    assert good.verdict == "pass", good.reason
    assert good.judgements[0].value == pytest.approx(0.93)
    said = str(good.judgements[0].text)
    assert "training top-1" in said
    assert "validation top-1" in said
    assert "6.67 h" in said
    assert "8 x V100 SXM2, one node 6.6 h" in said
    bad = judged(trained(0.90))
    assert (bad.verdict, bad.reason_code) == ("fail", "below-floor")


def test_an_input_that_bounds_the_rate_is_told() -> None:
    slow = trained(0.93)
    assert "bounds the rate" not in str(judged(slow).judgements[0].text)
    slow["predicted"]["input_images_per_s"] = 1.1 * slow["predicted"]["images_per_s"]
    assert "images/s, so that it bounds the rate" in str(judged(slow).judgements[0].text)


def test_the_long_test_tells_where_its_pictures_were() -> None:
    here, far = trained(0.93), "nfs4 of head:/data, over the network"
    assert " on nfs4" not in str(judged(here).judgements[0].text)
    here["storage"] = far
    assert f"(1000 classes, tfrecord on {far}) on " in str(judged(here).judgements[0].text)


def test_vgg19_is_reported_and_held_to_nothing() -> None:
    found = judged(trained(0.70, model="vgg19"), models="vgg19")
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")


def test_the_hours_of_the_long_test_itself_are_what_the_published_ones_are_held_against() -> None:
    found = judged(trained(0.93), of="tn.longh")
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    assert found.judgements[0].value == pytest.approx(24000 / 3600)
    assert "8 x V100 SXM2, one node 6.6 h" in found.reason
    by = packaged().claim("whitepaper.hours-k").confirmed_by
    assert by is not None
    assert (by.criterion, by.where) == ("tn.longh", {"model": "resnet50", "ranks": 8})
    short = judged(trained(0.99, epochs=3), of="tn.longh")
    assert short.judgements[0].value is None
    assert "not the long test" in short.reason


@pytest.mark.parametrize("other", [{"epochs": 3}, {"images": 600}])
def test_another_training_proves_nothing_of_the_long_test(other: dict[str, int]) -> None:
    found = judged(trained(0.99, **other))
    assert found.verdict == "not-measured"
    assert "not the long test, which is 90 epochs of 1281167 images" in found.reason


def test_in_a_lab_it_shows_the_procedure_alone() -> None:
    found = judged(trained(0.99), lab(), models="small-resnet", data="tiny")
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")


def test_a_training_that_ended_early_is_not_measured_with_the_rank_that_died() -> None:
    found = judged(None)
    assert found.verdict == "not-measured"
    assert "rank 3 on gpu2 ended" in found.reason


def test_a_rank_that_dies_is_named_with_its_last_lines(tmp_path: Path) -> None:
    """A program in place of mpirun, which says what mpirun and a rank say."""
    said = (
        "[rank 1 on gpu2] Traceback\n[rank 1 on gpu2] validation.probes.train_data.BadData: /data/train/a.jpg: it "
        "cannot be decoded\nmpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n  Process name: [[1,1],1]\n  Exit code:    1\n"
    )
    (tmp_path / "said").write_text(said)
    enter = tmp_path / "enter"
    enter.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'} >&2\nexit 1\n")
    enter.chmod(0o755)
    m = job_of(plan_of(site()))
    params = {**dict(job_for(m, site()).probe.params), "enter": str(enter)}
    doc = training_long_probe.probe(make(training_long_probe.Asked, params))
    assert doc["error"] is not None
    assert doc["error"].startswith("rank 1 on gpu2 ended with exit status 1; its last lines: ")
    assert "/data/train/a.jpg: it cannot be decoded" in doc["error"]


def test_the_report_draws_the_curve_and_says_why_there_is_none() -> None:
    topology = site()
    plan = plan_of(topology)
    facts = trained(0.93)

    def drawn(found: dict[str, Any], **changes: Any) -> Any:
        def long(m: Measurement) -> Result | None:
            return result(m, facts=found, **changes) if m.kind == "training-long" else None

        results = real_results(plan, spoil=long)
        documents = RunDocuments(
            run_info(topology, plan), topology, plan, load_fabric("tcp10"), tuple(results), (), None, None, {}, {}
        )
        return long_figure(documents, judged_by(topology, plan, results))

    figure = drawn(facts)
    assert figure.svg is not None
    assert "validation, top-1" in figure.svg
    assert len(figure.table.rows) < 20
    assert "published: 8 x V100" in figure.caption
    assert (
        "Not measured: training-long.resnet50-b128-fp16.16: failed: killed"
        in drawn({}, status="failed", error="killed").empty
    )


@pytest.mark.parametrize("options", [{**ASKED, "alone": 1, "epochs": 3}, {"models": "vgg16", "batches": "64"}])
def test_a_run_is_planned_again_by_all_that_was_asked_for(options: dict[str, Any]) -> None:
    """Else a run with words among its options could be neither continued nor judged."""
    topology, fabric = site(), load_fabric("tcp10")
    plan = make_plan("run-1", topology, fabric, CRITERIA, SUITES, options)
    info = run_info(topology, plan, options=options)

    def said(of: Any) -> list[str]:
        found = conflicts(of, topology, plan, fabric, CRITERIA, {}, of.toolkit_version)
        return [one.words for one in found if one.file == "plan.json" and "would plan" in one.words]

    assert said(info) == []
    assert len(said(info.model_copy(update={"options": {}}))) == 1
