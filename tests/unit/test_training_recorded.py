"""Traps and images of a vendor, on what mpirun, torchrun and the probes printed of them in a lab."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import REAL_FACTS, criterion, hardware, lab, plan_of, results_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.training import training_short_probe
from validation.measures.training.facts import TrainingFacts, TurnsFacts
from validation.model import Denied
from validation.probes import train_world
from validation.probes.asked import make
from validation.probes.train_trouble import trouble

DATA = Path(__file__).parents[1] / "data" / "training"
ASKED = {
    "ranks": 4, "ranks_per_node": 2, "warmup": 3, "steps": 20, "batch": 16, "model": "small", "precision": "fp32",
    "device": "cpu",
}  # fmt: skip


def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("host-key", "ssh asks whether it knows a node's host key"),
        ("denied", "ssh asks for a password"),
        ("late", "the job did not end within its time"),
        ("killed", "rank 3 on 10.78.1.14 was ended by signal 9 (Killed)"),
        ("torchrun-killed", "rank 3 on gpu2 was ended by signal 9"),
        ("exited", "rank 3 ended with exit status 1"),
        ("docker0", "MPI went over an interface that every node has with the same address, as docker0"),
    ],
)
def test_the_recorded_log_of_a_trap_is_explained(name: str, words: str) -> None:
    assert words in trouble((DATA / f"{name}.log").read_text())


def test_four_recorded_jobs_of_one_are_no_job_of_four() -> None:
    document = {**recorded("vendor.json"), "stdout": (DATA / "jobs-of-one.out").read_text(), "facts": {}}
    with pytest.raises(ParseError, match="4 reports from rank 0, exactly one is expected"):
        parse("training-short", document, ASKED)


# On processors, whose precision and step size were changed for it: one rate of 1e8, one autocast for a GPU that is not
# there, which torch turns into none with a warning.
ONE_NODE = {**ASKED, "ranks": 2}
ONE_NODE_JOB = {key: value for key, value in ONE_NODE.items() if key != "ranks_per_node"}


def test_a_recorded_loss_that_is_none_from_the_third_step_is_refused_with_the_step() -> None:
    document = recorded("nan.json")
    assert "had a loss that is not a number from step 3 of 23 on" in document["error"]
    with pytest.raises(ParseError, match="from step 3 of 23 on"):
        parse("training-short", document, ONE_NODE)
    with pytest.raises(ParseError, match="the loss is not finite from step 3 on"):
        parse("training-short", {**document, "error": None}, ONE_NODE)  # by the report alone


def test_a_loss_that_is_none_is_not_said_to_be_ranks_that_differ() -> None:
    report = recorded("nan.json")["facts"]
    assert report["ranks_agree"] is False, "what is no number is unlike itself"
    args = make(training_short_probe.Asked, {**ONE_NODE_JOB, "hosts": ["127.0.0.1:2"], "networks": ["127.0.0.0/8"]})
    assert training_short_probe.wrong(args, report) == (
        "the training had a loss that is not a number from step 3 of 23 on"
    )


def test_a_recorded_job_in_fp16_that_ran_as_fp32_is_refused() -> None:
    document = recorded("fp16.json")
    assert "CUDA is not available.  Disabling" in document["stderr"]
    with pytest.raises(ParseError, match="fp16 was asked for, and there were 4 of 4 products in float32"):
        parse("training-short", document, {**ONE_NODE, "precision": "fp16"})


def test_recorded_images_that_differ_are_named() -> None:
    assert recorded("mixed.json")["error"].startswith(
        "mixed frameworks: gpu1 has horovod 0.28.1, gpu2 has no horovod; every server needs the same image"
    )


def test_a_recorded_job_in_an_image_without_mpirun_is_read() -> None:
    document = recorded("vendor.json")
    assert "mpirun" not in " ".join(document["command"])
    samples, facts = parse("training-short", document, ASKED)
    assert isinstance(facts, TrainingFacts)
    assert (facts.launcher, facts.framework, facts.horovod) == ("torchrun", "ddp", "")
    assert facts.hosts == ("gpu1", "gpu1", "gpu2", "gpu2")
    assert len([s for s in samples if s.metric == "images_per_s"]) == 20


def test_recorded_turns_in_an_image_without_mpirun_are_read() -> None:
    ways = ("1x1", "1x2", "2x2", "torchrun")
    _, facts = parse("training-turns", recorded("vendor-turns.json"), {**ASKED, "ways": ways, "turns": 1})
    assert isinstance(facts, TurnsFacts)
    assert [(turn.way, turn.launcher, turn.ranks, turn.nodes) for turn in facts.turns] == [
        ("1x1", "torchrun", 1, 1), ("1x2", "torchrun", 2, 1), ("2x2", "torchrun", 4, 2), ("torchrun", "torchrun", 4, 2),
    ]  # fmt: skip


def test_a_rank_that_ends_before_it_meets_the_others_says_which_one_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setattr(train_world.socket, "gethostname", lambda: "gpu2")
    with pytest.raises(SystemExit) as ended:
        train_world.take_device("tcp", "fab0@203.0.113.7")
    last = str(ended.value)
    assert last == "[rank 3 on gpu2] none of the fabric ports fab0@203.0.113.7 is on gpu2"
    log = (DATA / "exited.log").read_text().replace("none of the fabric ports fab0@10.78.1.13 is on gpu2", last)
    assert trouble(log).startswith("rank 3 on gpu2 ended with exit status 1; its last lines: none of the fabric ports")


def test_recorded_collectives_of_torchrun_over_two_hosts_are_read_and_say_so() -> None:
    case = recorded("torchrun-collectives.json")
    words = case["document"]["command"]
    assert "/etc/elastic-ai/training/torchrun.py" in words
    assert "mpirun" not in " ".join(words)
    samples, facts = parse("collectives", case["document"], case["params"])
    assert isinstance(facts, CollectivesFacts)
    assert (facts.hosts, facts.by) == (("gpu1", "gpu2"), "gloo (torch, launched by torchrun)")
    assert len([s for s in samples if s.metric == "all_reduce_busbw_gb_s"]) == case["params"]["repeats"]
    ports = {node.host: node.ports for node in facts.carried}
    assert set(ports) == {"gpu1", "gpu2"}
    for host, mine in ports.items():
        assert sum(port.sent or 0 for port in mine if port.port == "fab0") > 40e6, f"{host}: not over the fabric"


def test_two_recorded_jobs_of_one_rank_are_no_collectives_of_torchrun() -> None:
    case = recorded("torchrun-collectives.json")
    with pytest.raises(ParseError, match="2 reports from rank 0, exactly one is expected"):
        parse("collectives", {**case["document"], "stdout": case["document"]["stdout"] * 2}, case["params"])


def test_the_report_and_the_verdict_name_torchrun_beside_the_rates() -> None:
    case = recorded("torchrun-collectives.json")
    topology = lab()
    plan = plan_of(topology, ("training",))
    (planned,) = (m for m in plan.measurements if m.kind == "collectives")
    assert {key: planned.params[key] for key in ("ranks", "iterations", "repeats")} == {
        key: case["params"][key] for key in ("ranks", "iterations", "repeats")
    }
    samples, facts = parse("collectives", case["document"], case["params"])
    results = [
        r.model_copy(update={"samples": samples, "facts": facts}) if r.measurement == planned.id else r
        for r in results_of(plan)
    ]
    found = criterion(verdict_of(topology, plan, results), "tr.nccl")
    assert "by gloo (torch, launched by torchrun)" in found.reason


# --- a quota of processor time, 20 % of one processor, from the 95th of 200 steps on


def throttled(**told: Any) -> Any:
    """tn.short of a site where one job is the recorded one; `told` replaces what its node says that it was denied."""
    case = recorded("throttled.json")
    topology = hardware()
    params = case["params"]
    plan = plan_of(topology, ("training",), options={key: params[key] for key in ("warmup", "steps", "batch")})
    samples, facts = parse("training-short", case["document"], params)
    denied = Denied.model_validate({**case["denied"], **told, "where": "gpu1"})
    results = [
        r.model_copy(update={"samples": samples, "facts": facts, "denied": (denied,)})
        if r.measurement.startswith("training-short.") and r.measurement.endswith(".1")
        else r
        for r in results_of(plan, facts=REAL_FACTS)
    ]
    (found,) = (
        j for j in criterion(verdict_of(topology, plan, results), "tn.short").judgements if "1 rank" in j.subject
    )
    return found


def test_a_recorded_node_that_throttles_keeps_a_fifth_of_its_rate() -> None:
    case = recorded("throttled.json")
    samples, _ = parse("training-short", case["document"], case["params"])
    rates = [s.value for s in samples if s.metric == "images_per_s"]
    assert len(rates) == 200
    assert statistics.median(rates[100:]) < 0.25 * statistics.median(rates[:80])


def test_a_recorded_node_that_throttles_does_not_pass_and_its_quota_is_named() -> None:
    found = throttled()
    assert (found.verdict, found.reason_code) == ("not-measured", "too-noisy")
    assert "held back by its quota of processor time for 48 %" in found.reason


def test_a_recorded_node_that_throttles_and_does_not_say_so_fails() -> None:
    found = throttled(throttled=None, pressure=None, others=None)
    assert (found.verdict, found.reason_code) == ("fail", "above-maximum")
    assert "spread" in found.reason
