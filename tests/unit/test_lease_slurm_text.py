"""What Slurm says, as data: jobs in both forms of its JSON, lists of hosts and GPUs, nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_texts import COMMENT, FORMS, START, answer, jobs_of, node_text, slurm_job
from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import ask
from toolkit.lease.fraction import GpuPart
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import Held, expand_hosts, parse_gres, parse_nodes
from toolkit.lease.jobs.submission import JobGpus, Submission
from toolkit.lease.lease_request import LeaseRequest
from toolkit.lease.pool import gpus_of, where_text
from toolkit.lease.pool_file import PoolDescription, PoolServer, ServerGpu
from toolkit.lease.server import hooks

ONE = Submission(LeaseRequest(1, GpuPart(140, 140)), JobGpus("shard", 140), 1, ("10.0.0.2",), "client1")
RECORDED = Path(__file__).parents[1] / "data" / "lease"


@pytest.mark.parametrize("form", FORMS)
def test_a_lease_says_who_has_what_and_until_when(form: str) -> None:
    (job,) = jobs_of(slurm_job(), form)
    assert (job.id, job.name, job.user, job.uid, job.state) == (41, "elastic-ai-lease", "alice", 1001, "RUNNING")
    assert job.held == (Held("gpu1", 2, 70),)
    assert (job.time_limit_s, job.nodes, job.partition, job.qos) == (3600, ("gpu1",), "v100", "normal")
    assert JobComment.read(job.comment).clients == ("10.77.1.12", "10.78.1.12")
    assert (job.start, job.until) == (START, START + 3600)
    (endless,) = jobs_of(slurm_job(minutes=None), form)
    assert (endless.time_limit_s, endless.until) == (None, None)
    (unknown,) = jobs_of(slurm_job(user=""), form)
    assert unknown.user == "uid 1001"


@pytest.mark.parametrize("form", FORMS)
def test_parts_that_start_together_are_one_lease(form: str) -> None:
    parts = slurm_job(43, array=41, task=0) + slurm_job(44, array=41, task=1, gres="shard:v100:70(IDX:3)")
    first, second = jobs_of(parts, form)
    assert (first.lease, second.lease, second.id, second.task) == (41, 41, 44, 1)
    (pending,) = jobs_of(slurm_job(41, array=41, array_task_string="2-5", state="PENDING", gres=""), form)
    assert (pending.lease, pending.task, pending.held, pending.nodes) == (41, 0, (), ())


@pytest.mark.parametrize("form", FORMS)
def test_gpus_of_several_servers_are_each_servers_own(form: str) -> None:
    (job,) = jobs_of(slurm_job(node="gpu[1-2]", gres=["gpu:v100:1(IDX:3)", "gpu:v100:2(IDX:0-1)"]), form)
    assert job.held == (Held("gpu1", 3, 0), Held("gpu2", 0, 0), Held("gpu2", 1, 0))
    (job,) = jobs_of(slurm_job(node="gpu[1-2]", gres="gpu:v100:1(IDX:3)"), form)
    assert (job.held, job.problem) == ((), "Slurm reports GPUs on 1 server, and the job has 2")


def test_a_state_that_is_several_words_is_the_one_that_counts() -> None:
    (job,) = slurm_job()
    for states, one in ((["CANCELLED", "COMPLETING"], "COMPLETING"), (["RUNNING", "CONFIGURING"], "CONFIGURING")):
        assert parse_jobs(answer([job | {"job_state": states}]))[0].state == one


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gres_detail": "gpu:1"}, "gres_detail of a job is no list"),
        ({"job_id": "41"}, "job_id of a job is no number"),
        ({"job_id": True}, "job_id of a job is no number"),
        ({"job_id": None}, "a job has no job_id"),
        ({"user_id": {"number": 0}}, "user_id of a job is no number"),
        ({"name": ["elastic-ai-lease"]}, "name of a job is no text"),
        ({"job_state": "RUNNING JobId=1"}, "job_state of a job is none"),
        ({"time_limit": -1}, "time_limit of a job is no number"),
    ],
)
def test_an_answer_that_no_user_can_bring_about_is_no_answer(change: dict[str, Any], words: str) -> None:
    (job,) = slurm_job()
    with pytest.raises(LeaseError, match=words):
        parse_jobs(answer([job | change]))
    del job[next(iter(change))]
    with pytest.raises(LeaseError, match=f"a job has no {next(iter(change))}; this release of Slurm"):
        parse_jobs(answer([job]))


def test_two_answers_to_one_question_are_none() -> None:
    with pytest.raises(LeaseError, match="two jobs have the same number"):
        parse_jobs(answer(slurm_job() + slurm_job()))
    twice = answer(slurm_job()).replace(b'"user_id": 1001', b'"user_id": 1001, "user_id": 0')
    with pytest.raises(LeaseError, match="user_id is there twice"):
        parse_jobs(twice)
    for said in (b"", b"[]", b"{}", b'{"jobs": []}', b"squeue: help", b"[" * 100_000):
        with pytest.raises(LeaseError):
            parse_jobs(said)
    failed = answer([], errors=[{"error": "Unable to contact slurm controller", "error_code": 5}])
    with pytest.raises(LeaseError, match="Slurm does not answer: Unable to contact slurm controller") as away:
        parse_jobs(failed)
    assert away.value.code == Exit.RETRY


def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str = "squeue") -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize(
    "complaint",
    [
        "squeue: unrecognized option '--json'",
        "squeue: fatal: JSON plugin load failure",
        "squeue: fatal: unable to load openapi plugins",
    ],
)
def test_a_slurm_without_json_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    squeue(tmp_path, monkeypatch, f'echo "{complaint}" >&2; exit 1')
    with pytest.raises(LeaseError, match="this Slurm cannot answer in JSON, which leases need"):
        slurm.jobs()


def test_a_job_that_slurm_has_forgotten_and_a_controller_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue(tmp_path, monkeypatch, 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    assert (slurm.job_parts(41), slurm.job(41)) == ([], None)
    squeue(tmp_path, monkeypatch, 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1')
    monkeypatch.setattr(slurm, "AGAIN_S", 0)
    with pytest.raises(LeaseError, match="Unable to contact") as away:
        slurm.job(41)
    assert away.value.code == Exit.RETRY


def test_a_controller_that_starts_anew_is_asked_again_but_never_given_a_request_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "AGAIN_PAUSE_S", 0)
    (tmp_path / "said").write_bytes(answer(slurm_job(41)))
    away = 'echo "Unable to contact slurm controller ({} failure)" >&2; exit 1'
    first = f"[ -e {tmp_path}/asked ] || {{{{ : > {tmp_path}/asked; {away}; }}}}; "
    squeue(tmp_path, monkeypatch, first.format("receive") + f"cat {tmp_path}/said")
    assert slurm.job(41) == jobs_of(slurm_job(41))[0]
    (tmp_path / "asked").unlink()
    squeue(tmp_path, monkeypatch, first.format("connect") + "echo 42", "sbatch")
    assert slurm.submit(ONE) == 42
    (tmp_path / "asked").unlink()
    squeue(tmp_path, monkeypatch, first.format("receive") + "echo 43", "sbatch")
    with pytest.raises(slurm.SlurmError) as unsure:
        slurm.submit(ONE)
    assert "it may have taken the request" in ask.explain(unsure.value, ONE.request)


def test_slurm_22_05_answers_with_all_jobs_and_one_is_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said").write_bytes(answer(slurm_job(4) + slurm_job(41) + slurm_job(43, array=41, task=1)))
    squeue(tmp_path, monkeypatch, f"cat {tmp_path}/said")
    assert [job.id for job in slurm.job_parts(41)] == [41, 43]
    found = slurm.job(43)
    assert found is not None
    assert found.id == 43
    assert slurm.job(42) is None


def test_what_slurm_22_05_really_says() -> None:
    jobs = {job.id: job for job in parse_jobs((RECORDED / "slurm-22.05.8-jobs.json").read_bytes())}
    assert [jobs[n].held for n in (1, 2)] == [(Held("gpu1", 0, 70),), (Held("gpu1", 1, 0), Held("gpu1", 2, 0))]
    assert [(jobs[n].lease, jobs[n].task, jobs[n].held) for n in (3, 10)] == [
        (3, 1, (Held("gpu1", 0, 35),)),
        (3, 0, (Held("gpu1", 0, 35),)),
    ]
    assert (jobs[1].user, jobs[1].uid, jobs[1].state, jobs[1].until) == ("alice", 2001, "RUNNING", jobs[1].end)
    assert JobComment.read(jobs[1].comment).what == "1/2 GPU"
    assert (jobs[9].state, jobs[9].lease, jobs[9].nodes, jobs[11].time_limit_s) == ("PENDING", 9, (), None)
    spoofed = [jobs[n] for n in (5, 6, 7)]
    assert [(job.user, job.uid, job.held) for job in spoofed] == [("bob", 2002, (Held("gpu1", 3, 1),))] * 3
    assert jobs[5].name.startswith("elastic-ai-lease\n   UserId=bob(2002)\n     Nodes=gpu1")
    assert jobs[6].name == "\\udcff\\udcfe not utf8 \\udc80"
    assert jobs[7].name.startswith('x", "gres_detail": ["gpu:v100:4(IDX:0-3)"]')
    nodes = parse_nodes((RECORDED / "slurm-22.05.8-nodes.txt").read_text())
    assert [(n.name, n.gpus, n.shards, n.serves) for n in nodes] == [("gpu1", 4, 560, True), ("gpu2", 4, 560, True)]


@pytest.mark.parametrize("number", [2, 5, 10])
def test_what_slurm_22_05_tells_a_prolog_agrees_with_what_it_answers(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (job,) = (j for j in parse_jobs((RECORDED / "slurm-22.05.8-jobs.json").read_bytes()) if j.id == number)
    for line in (RECORDED / f"slurm-22.05.8-prolog-{number}.env").read_text().splitlines():
        name, _, value = line.partition("=")
        if name in ("SLURM_JOB_UID", "SLURM_JOB_GPUS"):
            monkeypatch.setenv(name, value)
    hooks.cross_check(job, "gpu1")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,1,2,3")
    with pytest.raises(hooks.Contradiction, match="to the Prolog: 0,1,2,3"):
        hooks.cross_check(job, "gpu1")


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("gpu:v100:2(IDX:0,3)", [Held("n", 0, 0), Held("n", 3, 0)]),
        ("gpu:3(IDX:1-3)", [Held("n", 1, 0), Held("n", 2, 0), Held("n", 3, 0)]),
        ("shard:v100:35(0/140,35/140,0/140)", [Held("n", 1, 35)]),
        ("gpu:v100:0(IDX:N/A),shard:v100:7(IDX:1)", [Held("n", 1, 7)]),
        ("gpu:(null):1(IDX:2)", [Held("n", 2, 0)]),
        ("nic:1,license:big:4(x),gpu:1(IDX:0)", [Held("n", 0, 0)]),
        ("", []),
    ],
)
def test_gres_in_all_its_forms(text: str, held: list[Held]) -> None:
    assert parse_gres("n", text) == held


@pytest.mark.parametrize(
    "text",
    ["shard:v100:160(IDX:0-1)", "gpu:2(IDX:0)", "gpu:1", "gpu:1(IDX:0", "gpu:1(IDX:0)x", "shard:7(3/140,3/140)", "?"],
)
def test_gpus_that_cannot_be_told_are_no_guess(text: str) -> None:
    with pytest.raises(LeaseError):
        parse_gres("gpu1", text)


def test_nodes_and_what_is_free() -> None:
    nodes = parse_nodes(node_text() + node_text("gpu2", "IDLE+DRAIN", reason="broken fan"))
    assert [(n.name, n.gpus, n.shards, n.gpu_class, n.partitions) for n in nodes] == [
        ("gpu1", 4, 560, "v100", ("all", "v100")),
        ("gpu2", 4, 560, "v100", ("all", "v100")),
    ]
    assert [n.serves for n in nodes] == [True, False]
    jobs = jobs_of(slurm_job() + slurm_job(43, name="train", comment=None, gres="gpu:v100:1(IDX:0)"))
    gpus = gpus_of(nodes, jobs, PoolDescription({"gpu1": PoolServer(gpus=(ServerGpu(2, "Emulated V100", 256),))}))
    assert [(g.index, g.free) for g in gpus if g.node == "gpu1"] == [(0, 0), (1, 140), (2, 70), (3, 140)]
    assert gpus[2].uses[0].is_lease
    assert not gpus[0].uses[0].is_lease
    assert {g.free for g in gpus if g.node == "gpu2"} == {0}
    assert gpus[4].state == "idle+drain: broken fan"


def test_an_ended_job_holds_nothing() -> None:
    ended = jobs_of(slurm_job(state="COMPLETED"))
    assert [g.free for g in gpus_of(parse_nodes(node_text()), ended, PoolDescription())] == [140] * 4


def test_host_lists() -> None:
    assert expand_hosts("gpu[1-2,07],head") == ("gpu1", "gpu2", "gpu07", "head")
    assert expand_hosts("(null)") == ()
    assert where_text([("gpu1", 0), ("gpu1", 1), ("gpu1", 3), ("gpu2", 2)]) == "gpu1:0-1,3, gpu2:2"


def test_the_request_survives_the_comment() -> None:
    comment = JobComment(("10.0.0.1",), "client1", "hold", "4 x 1 GPU", 90, 0)
    assert JobComment.read(comment.text()) == comment


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"clients":["10.77.1.12","10.78.1.12"]', '"clients":[]'),
        ('"clients":["10.77.1.12","10.78.1.12"]', '"clients":["0.0.0.0/0"]'),
        ('"clients":["10.77.1.12","10.78.1.12"]', '"clients":["1.1.1.1 . 22 }; flush ruleset"]'),
        ('"mode":"run"', '"mode":"forever"'),
        ('"host":"client1"', '"host":"a;reboot"'),
        ('"memory_mib":0', '"memory_mib":-1'),
        ('"elastic-ai-lease":1', '"elastic-ai-lease":2'),
    ],
)
def test_a_comment_that_is_no_request_is_refused(old: str, new: str) -> None:
    assert old in COMMENT
    with pytest.raises(LeaseError):
        JobComment.read(COMMENT.replace(old, new))
