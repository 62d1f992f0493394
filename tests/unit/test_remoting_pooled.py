"""Siloed and pooled jobs: what is refused, what it is judged on, what the report shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.figures_case import added, cells, measurement
from tests.support.remote_pooled_documents import HAD_S, POOLED, pooled_document, pooled_result
from tests.support.report_fixture import make_run
from tests.support.site import CRITERIA, FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.plan_pooled import jobs
from validation.measures.remoting.pooled import GIVEN_ON_S, PooledFacts
from validation.measures.remoting.remoting_pooled_probe import Job
from validation.model import Judgement, Topology
from validation.report.documents import RunDocuments, read_run
from validation.report.drawn import figures_of
from validation.report.summary import verdict_of as shown_verdict
from validation.report.svg.drawing import Figure

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))
Changed = Callable[[str, str, dict[str, Any]], object]


def of(arrangement: str, job: str, /, **changes: Any) -> Changed:
    """Changes what became of one job."""
    return lambda *who: who[2].update(changes) if who[:2] == (arrangement, job) else None


def inside(arrangement: str, job: str, what: str, /, **changes: Any) -> Changed:
    """Changes its record, or its program's document."""
    return lambda *who: who[2][what].update(changes) if who[:2] == (arrangement, job) else None


def later(arrangement: str, job: str, seconds: int) -> Changed:
    """A job that had to wait longer, wherever it would have had a GPU before."""

    def change(which: str, name: str, made: dict[str, Any]) -> None:
        if (which, name) == (arrangement, job):
            made["record"]["start_s"] += seconds
            made["record"]["end_s"] += seconds

    return change


def read(**how: Any) -> PooledFacts:
    _, facts = parse("remoting-pooled", pooled_document(**how), POOLED)
    assert isinstance(facts, PooledFacts)
    return facts


def judged(topology: Topology = HARDWARE, **how: Any) -> Judgement:
    """Of a run of suite remoting in which it went so."""
    plan = plan_of(topology, ("preflight", "remoting"), "tcp10")
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    (m,) = (m for m in plan.measurements if m.kind == "remoting-pooled")
    found.append(pooled_result(m, **how))
    (judgement,) = criterion(verdict_of(topology, plan, found, fabric="tcp10"), "rm.pooled").judgements
    return judgement


def test_hours_and_waits_follow_from_the_record_of_the_leases() -> None:
    """A queue in order, eight seconds for each lease: A's six jobs take 3 rounds of two GPUs, or 2 of four."""
    facts = read()
    assert facts.wrong() == []
    siloed, pooled = facts.share("siloed", "A"), facts.share("pooled", "A")
    assert siloed is not None
    assert pooled is not None
    assert (siloed.makespan_s, pooled.makespan_s) == (3 * HAD_S, 2 * HAD_S)
    assert siloed.leased_gpu_s == pooled.leased_gpu_s == 4 * HAD_S + 2 * HAD_S / 2
    assert (siloed.wait_median_s, siloed.wait_most_s) == (HAD_S, 2 * HAD_S)
    # until B's burst at 12 s both GPUs of the other server are idle while jobs of A wait, which they do to 16 s
    assert (siloed.idle_gpu_s, pooled.idle_gpu_s) == (24.0, 0.0)
    samples, _ = parse("remoting-pooled", pooled_document(), POOLED)
    told = {s.metric: s.value for s in samples}
    assert (told["wrong"], told["makespan_siloed_s"], told["makespan_pooled_s"]) == (0, 28, 20)
    assert [s.value for s in samples if s.metric == "wait_siloed_s"].count(16) == 2


@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        (inside("pooled", "A1", "record", start_s=1), {}, "ended before it began, or began before"),
        (inside("pooled", "A1", "record", end_s=1), {}, "ended before it began"),
        (inside("pooled", "A1", "record", start_s=None), {}, "ended before it began"),
        (inside("pooled", "A1", "record", node="gpu9"), {}, "Slurm's record has it on gpu9, its lease on gpu1:0"),
        (inside("siloed", "A1", "report", steps=3), {}, "steps is 3, not as planned"),
        (inside("siloed", "A1", "report", tool="other"), {}, "no document of elastic-ai-train"),
        (inside("siloed", "A1", "report", losses=[1.0] * 80), {}, "or all the same"),
        (inside("siloed", "A6", "report", infer=False), {}, "infer is False"),
        (inside("siloed", "A1", "report", servers=[]), {}, "not reached through an engine"),
        (inside("siloed", "A1", "report", devices=[{"uuid": "GPU-7"}]), {}, "had another GPU than its lease"),
        (of("siloed", "A1", report=None), {}, "no document of elastic-ai-train"),
        (of("siloed", "A1", gpus=[]), {}, "its lease has 0 GPUs"),
        (None, {"servers": ["gpu1", "gpu3"]}, "servers"),
        (None, {"emulated": False}, "do not agree whether the GPU is emulated"),
    ],
)
def test_what_is_no_such_run_is_refused(change: Changed | None, facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse(
            "remoting-pooled", {**(made := pooled_document(change=change)), "facts": {**made["facts"], **facts}}, POOLED
        )


def test_a_siloed_job_on_the_other_department_s_server_is_refused() -> None:
    def stray(which: str, name: str, made: dict[str, Any]) -> None:
        if (which, name) == ("siloed", "A1"):
            made["gpus"][0]["server"] = made["record"]["node"] = "gpu2"

    with pytest.raises(ParseError, match="siloed A1: on gpu2:0, of which it asked for none"):
        read(change=stray)


def test_more_gpus_than_take_part_are_refused() -> None:
    def other(which: str, name: str, made: dict[str, Any]) -> None:
        if name == "A1":
            made["gpus"][0]["server_index"] = 3

    with pytest.raises(ParseError, match="3 GPUs of gpu1 were used, 2 take part"):
        read(change=other)


def test_jobs_that_are_not_all_there_are_refused() -> None:
    for old, new in (
        ("== pooled A1\n", ""),
        ("== pooled A1\n", "== siloed A1\n"),
        ("== siloed A1\n", "lease 4\n== siloed A1\n"),
    ):
        document = pooled_document()
        document["stdout"] = document["stdout"].replace(old, new)
        with pytest.raises(ParseError):
            parse("remoting-pooled", document, POOLED)


@pytest.mark.parametrize(("topology", "emulated"), [(HARDWARE, False), (LAB, True)])
def test_a_sound_run_passes_on_any_device_and_reports_hours_and_waits(topology: Topology, emulated: bool) -> None:
    found = judged(topology, emulated=emulated)
    assert (found.verdict, found.value) == ("pass", 0)
    assert "siloed: 10 jobs in " in found.reason
    assert "pooled: 10 jobs in " in found.reason
    assert ("the hours are of processors" in found.reason) is emulated


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        (of("pooled", "B1", status=75, words="no lease", gpus=[], report=None, lease=None, record=None), {},
         "B1 pooled ended with 75: no lease"),
        (inside("pooled", "A6", "report", answers_sha256="f" * 64), {}, "A6 computed something else pooled"),
        (inside("siloed", "A2", "record", end_s=None), {}, "A2 siloed: Slurm has no end of its lease"),
        (later("pooled", "A1", 10 * GIVEN_ON_S), {}, "A1 pooled was first in line and waited"),
        (None, {"free": False}, "not all GPUs were free again"),
    ],
)  # fmt: skip
def test_what_must_not_be_fails(topology: Topology, change: Changed | None, facts: dict[str, Any], words: str) -> None:
    found = judged(topology, emulated=topology is LAB, change=change, **facts)
    assert (found.verdict, found.value) == ("fail", 1)
    assert words in found.reason


def test_a_gpu_that_two_leases_had_at_once_fails() -> None:
    def twice(which: str, name: str, made: dict[str, Any]) -> None:
        if (which, name) == ("pooled", "A2"):
            made["gpus"][0]["server_index"] = 0

    assert read(change=twice).wrong() == [f"pooled: leases had more than the whole of gpu1:0 for {HAD_S} s"]


def test_who_waits_behind_another_is_not_first_in_line() -> None:
    """The half that B3 wants is free for long, but A1 asked for a whole GPU before it and waits for one."""

    def stuck(which: str, name: str, made: dict[str, Any]) -> None:
        if which == "pooled" and name in ("A1", "B3"):
            later("pooled", name, 100 if name == "A1" else 80)(which, name, made)

    late = read(change=stuck).beside_free_s("pooled")
    assert set(late) == {"A1"}
    assert late["A1"] >= 100 - HAD_S


def test_siloed_departments_are_lines_of_their_own() -> None:
    """A1 waits for gpu1; B1, which may not go there, is the first in line at gpu2."""

    def stuck(which: str, name: str, made: dict[str, Any]) -> None:
        if which == "siloed" and name in ("A1", "B1"):
            later("siloed", name, 100)(which, name, made)

    late = read(change=stuck).beside_free_s("siloed")
    assert set(late) == {"A1", "B1"}


def test_a_pool_in_which_nothing_can_be_compared_is_not_measured_and_fails_nobody() -> None:
    samples, _ = parse("remoting-pooled", pooled_document(unmade="several models"), POOLED)
    assert samples == []
    found = judged(unmade="several models")
    assert (found.verdict, found.reason) == ("not-applicable", "not measured: several models")


def test_the_criterion_says_how_long_is_too_long() -> None:
    (rule,) = (one for one in CRITERIA if one.id == "rm.pooled")
    assert f"more than {GIVEN_ON_S} s beside a GPU" in rule.bound.words


def drawn(bare: RunDocuments, **how: Any) -> tuple[Figure, ...]:
    m = measurement("remoting-pooled", "client1", ("client1", "gpu1", "gpu2"), params=POOLED)
    documents = added(bare, [(m, pooled_result(m, **how))])
    return tuple(f for f in figures_of("remoting", documents, shown_verdict(bare)) if f.id.startswith("pooled"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """A lab's run without remoting."""
    return read_run(make_run(tmp_path_factory.mktemp("bare") / "run"))


def test_the_report_shows_both_arrangements_side_by_side(bare: RunDocuments) -> None:
    chart, each = drawn(bare)
    assert "the hours are of processors that all of them share" in chart.caption
    text = str(chart.svg)
    assert all(text.count(f">{job.name}</text>") == 2 for job in jobs(virtual=True, torch=False))
    assert [text.count(gpu + "</text>") for gpu in ("gpu1:0", "gpu1:1", "gpu2:0", "gpu2:1")] == [2, 2, 2, 2]
    assert "A (gpu1) | siloed | 6 | 40.0 s | 24.0 s | 8.0 s | 16.0 s | 24.0 s" in cells(chart)
    assert "A (gpu1) | pooled | 6 | 40.0 s | 0.0 s | 0.0 s | 8.0 s | 16.0 s" in cells(chart)
    assert "A5 | small network, training | 1/2 | gpu1:0 | 16.0 s | 8.0 s |" in cells(each)
    assert cells(each).count("yes") == 10


def test_the_report_says_what_failed_and_draws_nothing_that_is_not_recorded(bare: RunDocuments) -> None:
    gone = of("pooled", "B1", status=75, words="no lease", gpus=[], report=None, lease=None, record=None)
    chart, each = drawn(bare, change=gone)
    assert "any GPU of both servers" not in str(chart.svg)
    assert "each department on its own server" in str(chart.svg)
    assert "(failed, 75)" in cells(each)


def test_the_report_says_why_nothing_is_shown(bare: RunDocuments) -> None:
    (frame,) = drawn(bare, unmade="several models")
    assert frame.empty == "Not measured: several models."


def test_a_count_that_nothing_bears_out_is_no_pass() -> None:
    plan = plan_of(LAB, ("preflight", "remoting"), "tcp10")
    (m,) = (m for m in plan.measurements if m.kind == "remoting-pooled")
    good = pooled_result(m, free=False)
    forged = good.model_copy(update={"samples": tuple(
        s.model_copy(update={"value": 0.0}) if s.metric == "wrong" else s for s in good.samples
    )})  # fmt: skip
    found = [healthy(one, facts=FACTS) for one in plan.measurements if one.kind == "facts"]
    (judgement,) = criterion(verdict_of(LAB, plan, [*found, forged], fabric="tcp10"), "rm.pooled").judgements
    assert (judgement.verdict, judgement.reason_code) == ("not-measured", "missing-metric")


def test_with_one_server_it_is_left_out() -> None:
    plan = plan_of(hardware(("head", "client1", "gpu1")), ("preflight", "remoting"), "tcp10")
    assert not [m for m in plan.measurements if m.kind == "remoting-pooled"]
    assert any("only one GPU server" in left.why and left.criteria == ("rm.pooled",) for left in plan.left_out)


@pytest.mark.parametrize("virtual", [True, False])
@pytest.mark.parametrize("torch", [True, False])
def test_the_declared_jobs_are_read_as_they_are_written(virtual: bool, torch: bool) -> None:
    made = jobs(virtual, torch)
    assert [Job.read(job.words) for job in made] == made
    assert {job.part for job in made} == {"1", "1/2"}
    assert any(job.load for job in made) is torch
    assert max(job.steps * job.pace_ms for job in made) <= 30_000, "an arrangement is to take 90 s at most"


@pytest.mark.parametrize("words", ["name=A1", f"{jobs(True, False)[0].words} colour=red", "A1"])
def test_words_that_are_no_job_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Job.read(words)
