"""A site's rates when it was accepted: which runs they are taken from, and that tn.rate holds a later run to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import (
    CRITERIA,
    RUN,
    criterion,
    hardware,
    job_samples,
    lab,
    real_results,
    result,
    run_info,
    trained,
    write_run,
)
from toolkit import acceptance, rundir
from toolkit.accepted import accepted_rates
from validation.judging.accepted import AcceptedRates
from validation.judging.run_data import Evidence, RunData
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Result, Topology, VerdictDoc
from validation.model.load import ConfigError, load_json
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric, read_fabric
from validation.run.catalogue import read_criteria
from validation.run.other_rules import judge_otherwise, rules_of
from validation.run.read import Run, read, tied
from validation.verdict.judge import judge

H100 = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=4)
K = Bom(
    model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", cpu_model="Xeon Silver 4116", gpu_root_ports=1,
    gpu_count=4,
)  # fmt: skip
FIRST, SECOND = "2026-03-01T10-00-00Z-tcp10", "2026-06-01T10-00-00Z-tcp10"
RATES = {1: 2500.0, 4: 9900.0, 8: 19000.0}
INTER = "training-short.resnet50-b128-fp16.inter"


def site(bom: Bom = H100) -> Topology:
    return hardware(("gpu1", "gpu2"), slots=4, bom=bom)


def plan_of(topology: Topology, run: str = "plan", **options: str) -> Plan:
    return make_plan(run, topology, load_fabric("tcp10"), CRITERIA, ("preflight", "training"), dict(options))


def results_of(plan: Plan, share: float = 1.0) -> list[Result]:
    def train(m: Measurement) -> Result | None:
        if m.kind != "training-short":
            return None
        return result(m, job_samples(m, share * RATES[int(str(m.params["ranks"]))], 0.01), facts=trained(m))

    return list(real_results(plan, spoil=train))


def keep(
    runs: Path, name: str, share: float = 1.0, sign_off: str = "ACCEPTED", bom: Bom = H100, **options: str
) -> Path:
    """A run of the site, with the sign-off written over: what an accepted run owes is tested elsewhere."""
    topology = site(bom)
    plan = plan_of(topology, name, **options)
    run = write_run(runs / name, topology, plan, results_of(plan, share))
    verdict = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps({**verdict, "sign_off": sign_off}))
    return run


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """verdict.json is taken as it stands; the runs that were judged again."""
    asked: list[Path] = []

    def standing(run: Path) -> VerdictDoc:
        asked.append(run)
        return load_json(read(run).source("verdict.json"), VerdictDoc)

    monkeypatch.setattr(acceptance, "standing", standing)
    return asked


def found(runs: Path, topology: Topology | None = None, **options: str) -> AcceptedRates | None:
    where = topology or site()
    return accepted_rates(runs, where, load_fabric("tcp10"), plan_of(where, **options))


def judged(accepted: AcceptedRates | None, share: float = 1.0, bom: Bom = H100, rates: Any = None) -> CriterionVerdict:
    topology = site(bom)
    plan = plan_of(topology)
    results = results_of(plan, share)
    info = run_info(topology, plan)
    doc = judge(RunData(info, topology, plan, load_fabric("tcp10"), CRITERIA, results, accepted=accepted))
    made: CriterionVerdict = criterion(doc, "tn.rate")
    return made


def test_a_site_is_held_to_what_it_trained_at_when_it_was_accepted(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, FIRST)
    rates = found(tmp_path)
    assert rates is not None
    assert {rate.measurement: round(rate.images_per_s, -2) for rate in rates.rates}[INTER] == 19000
    assert judged(rates).verdict == "pass"
    slow = judged(rates, share=0.5)
    assert (slow.verdict, slow.reason_code) == ("fail", "below-floor"), "both at half: peers alone would let it pass"
    assert len([j for j in slow.judgements if j.verdict == "fail"]) == 4
    assert f"accepted run {FIRST}" in str(slow.judgements[0].text)
    assert judged(None, share=0.5).verdict == "pass"


def test_it_is_the_first_accepted_run_so_that_nobody_slows_down_by_steps(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, SECOND, share=0.96)
    keep(tmp_path, FIRST)
    rates = found(tmp_path)
    assert rates is not None
    assert {rate.run for rate in rates.rates} == {FIRST}
    assert believed == [tmp_path / FIRST], "no other is judged again"


def test_a_job_that_the_first_has_not_comes_from_a_later_one(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, FIRST, models="vgg16")
    keep(tmp_path, SECOND)
    rates = found(tmp_path, models="resnet50,vgg16")
    assert rates is not None
    assert {(rate.model, rate.run) for rate in rates.rates} == {("vgg16", FIRST), ("resnet50", SECOND)}


@pytest.mark.parametrize("sign_off", ["REJECTED", "INCOMPLETE", "REHEARSAL"])
def test_a_run_that_was_not_accepted_counts_for_nothing(tmp_path: Path, believed: list[Path], sign_off: str) -> None:
    keep(tmp_path, FIRST, sign_off=sign_off)
    assert found(tmp_path) is None
    assert believed == [], "nor is it judged again"


def test_other_machines_batches_and_fabrics_are_another_job(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, FIRST)
    assert found(tmp_path, site(H100.model_copy(update={"gpu_model": "NVIDIA H200"}))) is None
    assert found(tmp_path, batches="64") is None
    assert accepted_rates(tmp_path, site(), load_fabric("tcp25"), plan_of(site())) is None
    assert found(tmp_path) is not None


def test_a_lab_is_held_to_nothing(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, FIRST)
    assert found(tmp_path, lab()) is None


def test_a_run_whose_verdict_does_not_follow_from_its_files_counts_for_nothing(tmp_path: Path) -> None:
    run = keep(tmp_path, FIRST)
    assert found(tmp_path) is None, "its sign-off was written over"
    (run / "verdict.json").write_text("{")
    assert found(tmp_path) is None
    assert found(tmp_path / "nowhere") is None


def test_what_is_published_comes_first(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path, FIRST, bom=K)
    rates = found(tmp_path, site(K))
    assert rates is not None
    assert "whitepaper.rate-resnet50-k" in str([j.text for j in judged(rates, bom=K).judgements])


def test_it_is_part_of_the_run_and_may_not_change(tmp_path: Path, believed: list[Path]) -> None:
    keep(tmp_path / "old", FIRST)
    rates, topology, run = found(tmp_path / "old"), site(), tmp_path / SECOND
    run.mkdir()
    plan = plan_of(topology, SECOND)
    info = run_info(topology, plan).model_copy(update={"created": "2026-06-01T10:00:00Z"})
    rundir.begin(run, rundir.NewRun(info, topology, plan, read_fabric("tcp10"), read_criteria(), accepted=rates))
    files = read(run)
    assert files.accepted == rates
    assert "accepted.json" in files.info.documents
    text = (run / "accepted.json").read_text()
    (run / "accepted.json").write_text(text.replace('"images_per_s": 2', '"images_per_s": 1'))
    with pytest.raises(ConfigError, match=r"accepted\.json.*was changed since the run began"):
        acceptance.judge_run(run)


def test_it_counts_by_other_rules_too(tmp_path: Path, believed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path / "old", FIRST)
    rates = found(tmp_path / "old")
    assert rates is not None
    run = keep(tmp_path / "new", SECOND, share=0.5)
    (run / "accepted.json").write_text("".join(rates.written()))
    info = read(run).info.model_copy(update={"documents": tied(run)})
    (run / "run.json").write_text("".join(info.written()))
    lines = (run / "results.jsonl").read_text()
    (run / "results.jsonl").write_text(lines.replace(f'"run":"{RUN}"', f'"run":"{SECOND}"'))
    monkeypatch.setattr(Run, "evidence", lambda *_: Evidence())  # its raw logs are no tool's
    verdict, told = judge_otherwise(run, rules_of(run, None, None))
    assert criterion(verdict, "tn.rate").verdict == "fail"
    assert told.old_outcome == "failed"
