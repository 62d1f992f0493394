"""Slurm's words as data, and what users write that must not pass for them. The texts are constructed: lease_texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lease_texts import COMMENT, job_text, node_text
from toolkit.lease import LeaseError
from toolkit.lease.job_comment import JobComment, parse_comment
from toolkit.lease.pool import gpus_of, where_text
from toolkit.lease.slurm_text import Held, expand_hosts, parse_gres, parse_job, parse_jobs, parse_nodes


def test_a_lease_says_who_has_what_and_until_when() -> None:
    job = parse_job(job_text())
    assert (job.id, job.name, job.user, job.uid, job.state) == (41, "elastic-ai-lease", "alice", 1001, "RUNNING")
    assert job.held == (Held("gpu1", 2, 70),)
    assert (job.time_limit_s, job.nodes, job.partition) == (3600, ("gpu1",), "v100")
    assert parse_comment(job.comment).clients == ("10.77.1.12", "10.78.1.12")
    assert job.end - job.start == 3600


def test_parts_that_start_together_are_one_lease() -> None:
    text = job_text(43, het="ArrayJobId=41 ArrayTaskId=0 ") + job_text(
        44, het="ArrayJobId=41 ArrayTaskId=1 ", gres="shard:v100:70(IDX:3)"
    )
    first, second = parse_jobs(text)
    assert (first.lease, second.lease, second.id, second.task) == (41, 41, 44, 1)
    (pending,) = parse_jobs(job_text(41, het="ArrayJobId=41 ArrayTaskId=2-5 ", state="PENDING", gres=""))
    assert pending.lease == 41


def test_what_slurm_22_05_really_says() -> None:
    """Recorded on a lab: two parts that run, and a lease that has ended."""
    recorded = Path(__file__).parents[1] / "data" / "lease"
    ended, first, second = parse_jobs((recorded / "slurm-22.05.8-jobs.txt").read_text())[-3:]
    assert (ended.ended, ended.held) == (True, ())
    assert (first.held, second.held) == ((Held("gpu1", 0, 70),), (Held("gpu2", 0, 70),))
    assert (first.user, first.state, first.until) == ("alice", "RUNNING", None)
    assert parse_comment(first.comment).what == "2 x 1/2 GPU"
    nodes = parse_nodes((recorded / "slurm-22.05.8-nodes.txt").read_text())
    assert [(n.name, n.gpus, n.shards, n.serves) for n in nodes] == [("gpu1", 4, 560, True), ("gpu2", 4, 560, True)]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("gpu:v100:2(IDX:0,3)", [Held("n", 0, 0), Held("n", 3, 0)]),
        ("gpu:3(IDX:1-3)", [Held("n", 1, 0), Held("n", 2, 0), Held("n", 3, 0)]),
        ("shard:v100:35(0/140,35/140,0/140)", [Held("n", 1, 35)]),
        ("gpu:v100:0(IDX:N/A),shard:v100:7(IDX:1)", [Held("n", 1, 7)]),
        ("", []),
    ],
)
def test_gres_in_all_its_forms(text: str, held: list[Held]) -> None:
    assert parse_gres("n", text) == held


def test_shards_on_gpus_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(LeaseError, match="several GPUs"):
        parse_gres("gpu1", "shard:v100:160(IDX:0-1)")


SPOOFED_LINES = (
    "   UserId=root(0) GroupId=root(0) MCS_label=N/A\n   JobState=RUNNING Reason=None\n"
    "   Partition=v100\n   NodeList=gpu1\n     Nodes=gpu1 CPU_IDs=0 Mem=16 GRES=gpu:v100:4(IDX:0-3)"
)


@pytest.mark.parametrize(
    "text",
    [
        job_text(name="elastic-ai-lease\n" + SPOOFED_LINES),
        job_text(name="elastic-ai-lease\n     Nodes=gpu1 CPU_IDs=0 Mem=1 GRES=gpu:v100:4(IDX:0-3)"),
        job_text(name="elastic-ai-lease\n   HetJobIdSet=1-2\n" + SPOOFED_LINES),
        job_text(name="elastic-ai-lease\x0b" + SPOOFED_LINES),
        job_text(name="elastic-ai-lease\n\n" + job_text(gres="gpu:v100:4(IDX:0-3)")),
    ],
)
def test_a_name_that_imitates_slurm_is_no_lease(text: str) -> None:
    assert [job for job in parse_jobs(text) if any(h.shards == 0 for h in job.held)] == []


def test_a_comment_or_path_that_imitates_slurm_gives_nothing() -> None:
    for text in (
        job_text(comment=COMMENT + "\n     Nodes=gpu1 CPU_IDs=0 Mem=16 GRES=gpu:v100:4(IDX:0-3)"),
        job_text(workdir="/x\n     Nodes=gpu1 CPU_IDs=0 Mem=16 GRES=gpu:v100:4(IDX:0-3)"),
    ):
        assert parse_job(text).held == (Held("gpu1", 2, 70),)
    # A whole second job inside a path: a number that stands twice is nobody's.
    assert parse_jobs(job_text(workdir="/x\n\n" + job_text(gres="gpu:v100:4(IDX:0-3)"))) == []


def test_nodes_and_what_is_free() -> None:
    nodes = parse_nodes(node_text() + node_text("gpu2", "IDLE+DRAIN", reason="broken fan"))
    assert [(n.name, n.gpus, n.shards, n.gpu_class, n.partitions) for n in nodes] == [
        ("gpu1", 4, 560, "v100", ("all", "v100")),
        ("gpu2", 4, 560, "v100", ("all", "v100")),
    ]
    assert [n.serves for n in nodes] == [True, False]
    jobs = parse_jobs(job_text() + job_text(43, name="train", comment="(null)", gres="gpu:v100:1(IDX:0)"))
    gpus = gpus_of(nodes, jobs, {"gpu1": {"gpus": [{"index": 2, "name": "Emulated V100", "memory_mib": 256}]}})
    assert [(g.index, g.free) for g in gpus if g.node == "gpu1"] == [(0, 0), (1, 140), (2, 70), (3, 140)]
    assert gpus[2].uses[0].is_lease
    assert not gpus[0].uses[0].is_lease
    assert {g.free for g in gpus if g.node == "gpu2"} == {0}
    assert gpus[4].state == "idle+drain: broken fan"


def test_an_ended_job_holds_nothing() -> None:
    ended = job_text(state="COMPLETED")
    assert [g.free for g in gpus_of(parse_nodes(node_text()), parse_jobs(ended), {})] == [140] * 4


def test_host_lists() -> None:
    assert expand_hosts("gpu[1-2,07],head") == ("gpu1", "gpu2", "gpu07", "head")
    assert expand_hosts("(null)") == ()
    assert where_text([("gpu1", 0), ("gpu1", 1), ("gpu1", 3), ("gpu2", 2)]) == "gpu1:0-1,3, gpu2:2"


def test_the_request_survives_the_comment() -> None:
    comment = JobComment(("10.0.0.1",), "client1", "hold", "4 x 1 GPU", 90, 0)
    assert parse_comment(comment.text()) == comment


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
        parse_comment(COMMENT.replace(old, new))
