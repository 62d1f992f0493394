"""From a request to Slurm's jobs, and the wait for them; Slurm's answers are constructed (lease_texts)."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_asked import POOL
from tests.support.lease_host import FakeClock, FakeHost, FakeSlurm
from tests.support.lease_texts import START, jobs_of, node_text, slurm_job
from toolkit.lease import Exit, LeaseError, pool
from toolkit.lease.client import ask, endings, running
from toolkit.lease.endpoint import LeaseEndpoint, NotStarted
from toolkit.lease.fraction import GpuPart
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.job_comment import ended_text
from toolkit.lease.jobs.slurm_text import Complaint, JobState, SlurmError, SlurmJob, parse_nodes
from toolkit.lease.jobs.submission import JobGpus, Submission
from toolkit.lease.lease_request import LeaseRequest
from toolkit.lease.machine import network
from toolkit.lease.pool_file import PoolDescription, PoolServer, ServerGpu
from toolkit.lease.wire import WORDS, EndCode, Ending

NODES = parse_nodes(POOL)
CLIENTS = ("10.0.0.2",)
ENDPOINT = lease_forms.endpoint(job="43", address="10.0.0.1", engine="x", release="r").text()  # fmt: skip


def submission(request: LeaseRequest, jobs: list[SlurmJob] | None = None) -> Submission:
    return ask.submission_of(request, NODES, NODES, pool.gpus_of(NODES, jobs or [], PoolDescription()), CLIENTS)


def gres(request: LeaseRequest, jobs: list[SlurmJob] | None = None) -> list[str]:
    asked = submission(request, jobs)
    return [f"{asked.gpus.kind}:{asked.gpus.count}"] * asked.jobs


def test_one_job_where_one_server_has_it_and_else_one_for_each_device() -> None:
    whole = GpuPart(140, 140)
    assert gres(LeaseRequest(4, whole)) == ["gpu:4"]
    assert gres(LeaseRequest(1, whole)) == ["shard:140"]
    assert gres(LeaseRequest(1, GpuPart(1, 1))) == ["gpu:1"]  # a pool without shards
    assert gres(LeaseRequest(6, whole)) == ["shard:140"] * 6
    busy = jobs_of(slurm_job(gres="gpu:v100:2(IDX:0-1)") + slurm_job(42, gres="gpu:v100:2(IDX:0-1)", node="gpu2"))
    assert gres(LeaseRequest(3, whole), busy) == ["shard:140"] * 3
    assert gres(LeaseRequest(2, whole), busy) == ["gpu:2"]
    assert gres(LeaseRequest(2, GpuPart(70, 140))) == ["shard:70"] * 2


def test_the_job_says_what_was_asked_for_and_from_where() -> None:
    request = LeaseRequest(1, GpuPart(20, 140), ("gpu2",), "v100", 90, "hold")
    asked = ask.submission_of(request, NODES[1:], NODES, pool.gpus_of(NODES, [], PoolDescription()), CLIENTS)
    comment = asked.comment
    assert (comment.mode, comment.what, comment.ttl_s, comment.clients) == ("hold", "1/7 GPU", 90, CLIENTS)
    assert (comment.parts, asked.jobs) == (1, 1)


def test_the_command_line_of_a_lease_is_made_once_from_what_it_is() -> None:
    """All of it, so that no change of it goes unseen."""
    part = LeaseRequest(3, GpuPart(20, 140), ("gpu2",), "v100", 90, "hold", host_mib=512)
    comment = (
        '{"elastic-ai-lease":1,"clients":["10.0.0.2"],"host":"client1","mode":"hold","what":"3 x 1/7 GPU",'
        '"ttl_s":90,"memory_mib":0,"parts":3,"where":"client"}'
    )
    always = ["--no-requeue", "--oversubscribe", "--chdir=/",
              "--input=/dev/null", "--output=/dev/null", "--error=/dev/null"]  # fmt: skip
    asked = Submission(part, JobGpus("shard", 20), 3, CLIENTS, "client1", ("gpu1", "gpu3"))
    assert asked.options() == [
        "--job-name=elastic-ai-lease", f"--comment={comment}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", *always,
        "--time=2", "--partition=v100", "--exclude=gpu1,gpu3", "--mem=512", "--gres=shard:20", "--array=0-2",
    ]  # fmt: skip
    there = LeaseRequest(5, GpuPart(140, 140), where="server", servers_there=2, unequal=True, cpus_per_gpu=4)
    words = Submission(there, JobGpus("gpu", 5, in_all=True), 1, CLIENTS, "client1").options()
    assert [words[0], *words[2:]] == [
        "--job-name=elastic-ai-lease", "--nodes=2", "--ntasks=2", "--cpus-per-gpu=4", *always,
        "--mem-per-gpu=16", "--gpus=5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (LeaseRequest(9, GpuPart(140, 140)), "9 GPUs requested, the pool has 8 GPUs (gpu1: 4, gpu2: 4)"),
        (
            LeaseRequest(9, GpuPart(105, 140)),
            "9 x 3/4 GPU requested, the pool has 8 GPUs (gpu1: 4, gpu2: 4), which is 8 such parts",
        ),
        (LeaseRequest(0, GpuPart(140, 140)), "request at least 1 GPU"),
    ],
)
def test_what_the_pool_never_has_is_refused(request_: LeaseRequest, words: str) -> None:
    with pytest.raises(LeaseError) as refused:
        ask.refuse_impossible(request_, NODES)
    assert words in str(refused.value)


def test_servers_and_classes_that_are_not_there() -> None:
    whole = GpuPart(140, 140)
    for request, words in (
        (LeaseRequest(1, whole, ("gpu7",)), "gpu7"),
        (LeaseRequest(1, whole, (), "h100"), "all, v100"),
    ):
        with pytest.raises(LeaseError, match=words):
            ask.eligible(request, NODES, "all")
    assert [n.name for n in ask.eligible(LeaseRequest(1, GpuPart(140, 140), ("gpu2",)), NODES, "all")] == ["gpu2"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Invalid account or account/partition combination specified", Complaint.NOT_PERMITTED),
        (
            "Job's QOS not permitted to use this partition (all allows no, students not)",
            Complaint.NOT_PERMITTED,
        ),
        ("Access/permission denied", Complaint.NOT_PERMITTED),
        ("Job violates accounting/QOS policy (job submit limit, ...)", Complaint.POLICY),
        ("Requested node configuration is not available", Complaint.NEVER),
        ("Invalid job id specified", Complaint.NO_JOB),
        ("Unable to create step for job 41: Requested nodes are busy", Complaint.BUSY),
        ("Unable to create step for job 41: Memory required by task is not available", Complaint.BUSY),
        ("Batch job submission failed: Memory required by task is not available", Complaint.OTHER),
        ("cat: /run/elastic-ai/leases/41/endpoint.json: No such file or directory", Complaint.NO_FILE),
        ("Unable to contact slurm controller (connect failure)", Complaint.AWAY),
        ("Unable to contact slurm controller (receive failure)", Complaint.NO_ANSWER),
        ("Socket timed out on send/recv operation", Complaint.NO_ANSWER),
        ("Job held by its owner", Complaint.OTHER),
    ],
)
def test_what_slurm_complains_of_has_a_kind_and_is_passed_on(said: str, kind: Complaint) -> None:
    fault = SlurmError(f"Batch job submission failed: {said}")
    assert fault.kind is kind
    assert said in ask.explain(fault, LeaseRequest(1, GpuPart(140, 140), (), "h100"))


def test_who_may_use_some_classes_only_is_told_to_name_one() -> None:
    fault = SlurmError("not permitted", kind=Complaint.NOT_PERMITTED)
    assert "--class" in ask.explain(fault, LeaseRequest(1, GpuPart(140, 140)))
    assert "--class" not in ask.explain(fault, LeaseRequest(1, GpuPart(140, 140), (), "h100"))


def test_a_controller_that_started_anew_is_not_taken_at_its_word() -> None:
    """Until a server has registered it has no shards (seen of Slurm 22.05 with jobs), and Slurm refuses for ever."""
    begins = node_text("gpu1", "UNKNOWN", "gpu:v100:4,shard:0")
    assert [(node.shards, node.awaited, node.serves) for node in parse_nodes(begins)] == [(560, True, False)]
    begins = node_text("gpu1", "IDLE", "gpu:v100:4,shard:0")  # as one that had no job
    assert [(node.shards, node.awaited, node.serves) for node in parse_nodes(begins)] == [(560, True, True)]
    assert [node.awaited for node in parse_nodes(POOL)] == [False, False]

    class Anew(FakeSlurm):
        def submit(self, submission: Submission) -> int:
            if clock.now < 6:
                raise SlurmError("Batch job submission failed: Requested node configuration is not available")
            self.node_text = POOL
            return 41

    clock = FakeClock()
    asked = submission(LeaseRequest(2, GpuPart(140, 140)))
    assert ask.submit(FakeHost(slurm=Anew(node_text=begins), clock=clock), asked) == 41
    clock = FakeClock(now=5.5)  # it refuses, and has heard of the servers before it is asked for them
    assert ask.submit(FakeHost(slurm=Anew(node_text=POOL), clock=clock), asked) == 41
    clock = FakeClock()
    with pytest.raises(LeaseError, match="can ever give 2 GPUs"):
        ask.submit(FakeHost(slurm=Anew(node_text=POOL), clock=clock), asked)
    assert clock.now <= 2


def test_a_wish_that_cannot_be_taken_back_now_is_said() -> None:
    """Ctrl-C while the controller is away: a lease to be held would otherwise start unknown to its owner."""

    class Away(FakeSlurm):
        def cancel(self, lease: int) -> None:
            raise SlurmError("Unable to contact slurm controller (connect failure)", Exit.RETRY)

        def states(self, lease: int) -> list[JobState]:
            raise KeyboardInterrupt

    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        ask.obtain(FakeHost(slurm=Away()), submission(LeaseRequest(1, GpuPart(140, 140))), told.append)
    assert "later: toolkit lease release 41" in told[0]


def test_what_slurm_holds_back_is_asked_for_again_a_few_times() -> None:
    """Slurm 22.05 requeues a lease as held when its controller restarts while the lease starts."""
    held = [
        slurm_job(lease, state="PENDING", gres="", state_reason="JobHeldAdmin") for lease in range(41, 41 + ask.TRIES)
    ]
    host, told = FakeHost(slurm=FakeSlurm(said=[held[0], slurm_job(42), slurm_job(42)], files=[ENDPOINT])), list[str]()
    asked = submission(LeaseRequest(1, GpuPart(70, 140)))
    assert ask.obtain(host, asked, told.append)[0] == 42
    assert host.slurm.cancelled == [41]
    assert told == ["lease 41: Slurm holds it back (JobHeldAdmin); it is released and requested again"]
    host = FakeHost(slurm=FakeSlurm(said=held))
    with pytest.raises(LeaseError, match="holds it back"):
        ask.obtain(host, asked, told.append)
    assert len(host.slurm.cancelled) == ask.TRIES


def test_what_its_server_could_not_start_is_asked_for_again_device_by_device() -> None:
    refused = json.dumps({"error": "GPU 0 already has leases", "node": "gpu1", "again": True})
    two = [slurm_job(lease, array=lease, task=0) + slurm_job(lease + 1, array=lease, task=1) for lease in (42, 43)]
    texts = [slurm_job(41), *two]
    host = FakeHost(slurm=FakeSlurm(said=texts, files=[refused, refused, ENDPOINT]))
    told: list[str] = []
    asked = submission(LeaseRequest(2, GpuPart(140, 140), host_mib=512))
    lease, endpoints = ask.obtain(host, asked, told.append)
    assert (lease, [type(one) for one in endpoints]) == (43, [LeaseEndpoint] * 2)
    again = replace(asked, gpus=JobGpus("shard", 140), jobs=2)
    assert host.slurm.submitted == [asked, again, again]
    assert [one.options()[-3:] for one in (asked, again)] == [
        ["--error=/dev/null", "--mem=1024", "--gres=gpu:2"], ["--mem=512", "--gres=shard:140", "--array=0-1"],
    ]  # fmt: skip
    assert [one.comment.parts for one in (asked, again)] == [1, 2]
    assert host.slurm.cancelled == [41, 42]
    assert told[0].startswith("lease 41: gpu1: GPU 0 already has leases; it is released and requested again")
    texts = [slurm_job(number) for number in range(41, 41 + ask.TRIES)]
    host = FakeHost(slurm=FakeSlurm(said=texts, files=[refused]))
    with pytest.raises(NotStarted):
        ask.obtain(host, submission(LeaseRequest(1, GpuPart(140, 140))), told.append)
    assert len(host.slurm.cancelled) == ask.TRIES


def test_an_endpoint_that_is_not_there_yet_is_waited_for_and_one_that_never_comes_is_asked_for_again() -> None:
    busy, missing = SlurmError("Requested nodes are busy"), SlurmError("cat: endpoint.json: No such file or directory")
    away = SlurmError("Unable to create step for job 41: Unable to contact slurm controller (connect failure)")
    (job,) = jobs_of(slurm_job())
    host = FakeHost(slurm=FakeSlurm(files=[busy, away, busy, ENDPOINT]))
    assert [one.node for one in ask.endpoints_of(host, [job])] == ["gpu1"]
    with pytest.raises(SlurmError) as late:
        ask.endpoints_of(FakeHost(slurm=FakeSlurm(files=[busy])), [job])
    assert late.value.kind is Complaint.BUSY
    with pytest.raises(NotStarted, match="gpu1 started no lease for job 41"):
        ask.endpoints_of(FakeHost(slurm=FakeSlurm(files=[missing])), [job])


def test_a_server_that_is_not_ready_at_once_is_reported_before_its_endpoint_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    heard = threading.Event()

    class Slow(FakeSlurm):
        def read_on_node(self, *words: Any) -> str:
            assert heard.wait(60)
            return super().read_on_node(*words)

    def say(words: str) -> None:
        told.append(words)
        heard.set()

    monkeypatch.setattr(ask, "STARTS_S", 0.0)
    wanted = submission(LeaseRequest(1, GpuPart(140, 140)))
    lease, _ = ask.obtain(FakeHost(slurm=Slow(said=[slurm_job()], files=[ENDPOINT])), wanted, say)
    assert told == [f"lease {lease}: starting on gpu1"]
    left = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert left == [], "the program is started without a thread"


@pytest.mark.parametrize(
    ("heard", "slurms", "words"),
    [
        (Ending(EndCode.TIME, "its time is over"), "CANCELLED", "its time is over"),
        (Ending(EndCode.TAKEN_BACK, "it was taken back"), "PREEMPTED", "a job of higher priority needs its GPUs"),
        (Ending(EndCode.PREEMPTED, WORDS[EndCode.PREEMPTED]), "CANCELLED", WORDS[EndCode.PREEMPTED]),
        (Ending(EndCode.ADMINISTRATOR, WORDS[EndCode.ADMINISTRATOR]), "CANCELLED", WORDS[EndCode.ADMINISTRATOR]),
        (Ending(EndCode.LOST, "gpu1 did not answer for 1 s"), "NODE_FAIL", "gpu1 failed"),
        (Ending(EndCode.LOST, "gpu1 did not answer for 1 s"), "RUNNING", "gpu1 did not answer for 1 s"),
        (None, "RUNNING", "unknown"),
    ],
)
def test_slurm_knows_best_why_a_lease_was_lost_but_for_its_time_and_its_client(
    heard: Ending | None, slurms: str, words: str
) -> None:
    class Keeper:
        ending = heard

    host = FakeHost(slurm=FakeSlurm(said=[slurm_job(state=slurms)]))
    assert running.lost_words(host, 41, [Keeper()]) == words  # type: ignore[list-item]


def test_why_is_known_before_slurm_has_done_with_the_job() -> None:
    """While the Epilog runs its state is COMPLETING, whatever ended it."""

    class Keeper:
        ending = Ending(EndCode.TAKEN_BACK, "it was taken back")

    for more, words in (
        ({"preempt_time": START}, WORDS[EndCode.PREEMPTED]),
        ({"admin_comment": ended_text("the administrator ended it")}, "the administrator ended it"),
        ({}, "it was taken back"),
    ):
        host = FakeHost(slurm=FakeSlurm(said=[slurm_job(state="COMPLETING", **more)]))
        assert running.lost_words(host, 41, [Keeper()]) == words  # type: ignore[list-item]


def test_signals_are_named_as_people_name_them() -> None:
    assert [running.parse_signal(n) for n in ("USR1", "sigusr1", "10")] == [signal.SIGUSR1] * 3
    for wrong, words in (("NOPE", "no such signal"), ("999", "no such signal"), ("STOP", "cannot end")):
        with pytest.raises(LeaseError, match=f"--signal {wrong}: .*{words}"):
            running.parse_signal(wrong)


@pytest.mark.parametrize(
    ("state", "words"), [("TIMEOUT", "time is over"), ("PREEMPTED", "higher priority"), ("NODE_FAIL", "gpu1 failed")]
)
def test_every_end_has_its_sentence(state: str, words: str) -> None:
    (job,) = jobs_of(slurm_job(state=state))
    assert words in endings.ended_words(job)


def test_the_environment_of_another_job_does_not_change_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SBATCH_GRES", "gpu:8")
    monkeypatch.setenv("SBATCH_ACCOUNT", "research")
    kept = slurm.clean_environment()
    assert "SLURM_JOB_ID" not in kept
    assert "SBATCH_GRES" not in kept
    assert kept["SBATCH_ACCOUNT"] == "research"
    assert kept["SLURM_TIME_FORMAT"] == "%s"  # an hour that a clock shows twice is two
    monkeypatch.setenv("SLURM_CONF", "/home/bob/slurm.conf")
    assert slurm.clean_environment()["SLURM_CONF"] == "/home/bob/slurm.conf"
    monkeypatch.setenv("SUDO_UID", "1001")  # root loads no plugins of a user's choice
    assert "SLURM_CONF" not in slurm.clean_environment()


def test_parts_that_are_to_be_apart_are_one_job_on_a_server_for_each() -> None:
    halves = LeaseRequest(2, GpuPart(70, 140), apart=True)
    asked = submission(halves)
    assert asked.jobs == 1
    assert {"--nodes=2", "--ntasks=2", "--gres=shard:70"} <= set(asked.options())
    ask.refuse_impossible(halves, NODES)
    with pytest.raises(LeaseError, match=r"3 parts need 3 servers, one each, and there are 2 \(gpu1, gpu2\)"):
        ask.refuse_impossible(replace(halves, count=3), NODES)
    for same in (replace(halves, count=1), replace(halves, apart=False)):
        assert submission(same).servers == 1
    on_two = {"gres": ("shard:v100:70(IDX:0)", "shard:v100:70(IDX:3)"), "node": "gpu[1-2]"}
    refused = json.dumps({"error": "GPU 0 already has leases", "node": "gpu1", "again": True})
    files: list[str | Exception] = [refused, ENDPOINT]
    host = FakeHost(slurm=FakeSlurm(said=[slurm_job(41, **on_two), slurm_job(42, **on_two)], files=files))
    lease, endpoints = ask.obtain(host, asked, lambda _words: None)
    assert (lease, len(endpoints), host.slurm.read) == (42, 2, ["gpu1", "gpu1", "gpu2"])
    assert host.slurm.submitted == [asked] * 2


@pytest.mark.parametrize(("part", "gres"), [(GpuPart(1, 1), "gpu:1"), (GpuPart(140, 140), "shard:140")])
def test_whole_gpus_that_are_to_be_apart_are_one_job_on_a_server_for_each(part: GpuPart, gres: str) -> None:
    """Also where one server has them all free."""
    two = LeaseRequest(2, part, apart=True)
    asked = submission(two)
    assert (asked.jobs, asked.servers, asked.device_by_device()) == (1, 2, asked)
    assert {"--nodes=2", "--ntasks=2", f"--gres={gres}"} <= set(asked.options())
    ask.refuse_impossible(two, NODES)
    with pytest.raises(LeaseError, match=r"3 GPUs need 3 servers, one each, .* \(gpu1, gpu2\); without --apart"):
        ask.refuse_impossible(replace(two, count=3), NODES)


def test_a_job_asks_for_the_host_memory_that_its_devices_need_on_any_of_the_servers(tmp_path: Path) -> None:
    host = FakeHost(folder=tmp_path)
    half, whole = LeaseRequest(2, GpuPart(70, 140)), LeaseRequest(2, GpuPart(140, 140))
    with pytest.raises(LeaseError, match="no remoting engine"):
        ask.host_mib(host, half, NODES, PoolDescription())
    host.serve()
    gpu = ServerGpu(0, memory_mib=256, emulated=True)
    others = PoolServer(gpus=(replace(gpu, emulated=False),), memory_mib=600)
    servers = PoolDescription({"gpu1": PoolServer(gpus=(gpu,)), "gpu2": others})
    assert [ask.host_mib(host, half, nodes, servers) for nodes in (NODES, NODES[:1], NODES[1:])] == [640, 640, 600]
    assert ask.host_mib(host, whole, NODES, servers) == 512 + 256
    assert {"--mem=640", "--gres=shard:70"} <= set(submission(replace(half, host_mib=640)).options())
    assert {"--mem=1536", "--gres=gpu:2"} <= set(submission(replace(whole, host_mib=768)).options())


def test_a_lease_admits_the_addresses_that_its_servers_see_and_no_other() -> None:
    told = {"gpu1": PoolServer("10.78.1.13"), "gpu2": PoolServer("10.79.1.14"), "gpu3": PoolServer()}
    servers = PoolDescription(told)
    nodes = NODES + parse_nodes(node_text("gpu3"))
    host = FakeHost()
    with pytest.raises(LeaseError, match=r"no route to 10\.78\.1\.13, 10\.79\.1\.14"):
        ask.clients_for(host, nodes, servers)
    host.network.routes |= {"10.78.1.13": "10.78.1.12"}
    assert ask.clients_for(host, nodes, servers) == ("10.78.1.12",)
    host.network.routes |= {"10.79.1.14": "10.79.1.12"}
    assert ask.clients_for(host, nodes, servers) == ("10.78.1.12", "10.79.1.12")
    assert ask.clients_for(host, nodes[1:], servers) == ("10.79.1.12",)
    with pytest.raises(LeaseError, match=r"has no record .* run site\.yml"):
        ask.clients_for(host, nodes, PoolDescription({"gpu3": PoolServer()}))
    many = {f"gpu{i}": PoolServer(f"10.0.{i}.1") for i in range(9)}
    host.network.routes |= {f"10.0.{i}.1": f"10.0.{i}.2" for i in range(9)}
    with pytest.raises(LeaseError, match="from 9 addresses; name some servers by -l"):
        ask.clients_for(host, parse_nodes("".join(map(node_text, many))), PoolDescription(many))
    assert [network.source_address(a) for a in ("127.0.0.1", "300.1.1.1")] == ["127.0.0.1", ""]
