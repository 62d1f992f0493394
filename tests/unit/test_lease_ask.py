"""From a wish to Slurm's jobs, and the wait for them; Slurm's answers are constructed (lease_texts)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lease_texts import COMMENT, job_text, node_text

from toolkit.commands import lease_shared
from toolkit.lease import LeaseError, ask, manage, pool, running, slurm
from toolkit.lease.endpoint import NotStarted
from toolkit.lease.fraction import Part
from toolkit.lease.request import parse_comment
from toolkit.lease.slurm_text import Job, parse_jobs, parse_nodes

NODES = parse_nodes(node_text("gpu1", "IDLE") + node_text("gpu2", "IDLE"))


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "client_addresses", lambda: ("10.0.0.2",))


def gres(wish: ask.Wish, jobs: list[Job] | None = None) -> list[str]:
    gpus = pool.gpus_of(NODES, jobs or [], {})
    return [part[-1].removeprefix("--gres=") for part in ask.options(wish, NODES, NODES, gpus)]


def test_one_job_where_one_server_has_it_and_else_one_for_each_device() -> None:
    whole = Part(140, 140)
    assert gres(ask.Wish(4, whole)) == ["gpu:4"]
    assert gres(ask.Wish(1, whole)) == ["shard:140"]
    assert gres(ask.Wish(1, Part(1, 1))) == ["gpu:1"]  # a pool without shards
    assert gres(ask.Wish(6, whole)) == ["shard:140"] * 6
    busy = parse_jobs(job_text(gres="gpu:v100:2(IDX:0-1)") + job_text(42, gres="gpu:v100:2(IDX:0-1)", node="gpu2"))
    assert gres(ask.Wish(3, whole), busy) == ["shard:140"] * 3
    assert gres(ask.Wish(2, whole), busy) == ["gpu:2"]
    assert gres(ask.Wish(2, Part(70))) == ["shard:70"] * 2


def test_the_job_says_what_was_asked_for_and_from_where() -> None:
    wish = ask.Wish(1, Part(20), ("gpu2",), "v100", 90, "hold")
    (words,) = ask.options(wish, NODES[1:], NODES, pool.gpus_of(NODES, [], {}))
    comment = next(w for w in words if w.startswith("--comment=")).removeprefix("--comment=")
    request = parse_comment(comment)
    assert (request.mode, request.what, request.ttl_s, request.clients) == ("hold", "1/7 GPU", 90, ("10.0.0.2",))
    assert {"--time=2", "--partition=v100", "--exclude=gpu1", "--no-requeue", "--oversubscribe"} <= set(words)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (ask.Wish(9, Part(140)), "asks for 9 GPUs, the pool has 8 GPUs (gpu1: 4, gpu2: 4)"),
        (ask.Wish(9, Part(105)), "asks for 9 x 3/4 GPU, the pool has 8 GPUs (gpu1: 4, gpu2: 4), which is 8 such parts"),
        (ask.Wish(0, Part(140)), "ask for at least 1 GPU"),
    ],
)
def test_what_the_pool_never_has_is_refused(wish: ask.Wish, words: str) -> None:
    with pytest.raises(LeaseError) as refused:
        ask.refuse_impossible(wish, NODES)
    assert words in str(refused.value)


def test_servers_and_classes_that_are_not_there() -> None:
    for wish, words in ((ask.Wish(1, Part(140), ("gpu7",)), "gpu7"), (ask.Wish(1, Part(140), (), "h100"), "all, v100")):
        with pytest.raises(LeaseError, match=words):
            ask.eligible(wish, NODES, "all")
    assert [n.name for n in ask.eligible(ask.Wish(1, Part(140), ("gpu2",)), NODES, "all")] == ["gpu2"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Batch job submission failed: Invalid account or account/partition combination specified",
            "you may not use it",
        ),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)", "pool's policy"),
        (
            "Batch job submission failed: Requested node configuration is not available",
            "no server of the pool can ever",
        ),
        ("Unable to contact slurm controller", "Slurm refuses"),
    ],
)
def test_slurms_refusals_are_sentences(said: str, words: str) -> None:
    sentence = ask.explain(said, ask.Wish(1, Part(140), (), "h100"))
    assert words in sentence
    assert said in sentence


def test_who_may_use_some_classes_only_is_told_to_name_one() -> None:
    said = "Batch job submission failed: Job's QOS not permitted to use this partition (all allows no, students not)"
    assert "name one of yours by --class" in ask.explain(said, ask.Wish(1, Part(140)))


def test_the_wait_says_what_it_waits_for_and_why_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = job_text(state="PENDING", gres="")
    texts = [pending, pending, job_text(state="CONFIGURING"), job_text()]
    monkeypatch.setattr(slurm, "job_parts", lambda _n: parse_jobs(texts.pop(0)))
    monkeypatch.setattr(slurm, "place_in_queue", lambda _n: 3)
    monkeypatch.setattr(slurm, "expected_start", lambda _n: "2026-11-21T16:00:00")
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    told: list[str] = []
    (job,) = ask.wait(41, "1/2 GPU", told.append)
    assert job.state == "RUNNING"
    assert told == ["lease 41: waits for 1/2 GPU, place 3 in the queue, expected 2026-11-21 16:00:00"]
    ended = job_text(state="CANCELLED").replace("   StdErr", "   AdminComment=ended: its client has gone\n   StdErr")
    monkeypatch.setattr(slurm, "job_parts", lambda _n: parse_jobs(ended))
    with pytest.raises(LeaseError, match="lease 41 has ended: its client has gone") as over:
        ask.wait(41, "", told.append)
    assert over.value.code == 75


def test_what_its_server_could_not_start_is_asked_for_again_device_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[list[str]]] = []
    cancelled: list[int] = []
    answers = [NotStarted("gpu1: GPU 0 already has leases", 75)] * 2

    def submit(_wish: ask.Wish, parts: list[list[str]]) -> int:
        asked.append(parts)
        return 40 + len(asked)

    def served(_jobs: list[Job]) -> list[str]:
        if answers:
            raise answers.pop()
        return ["endpoint"]

    monkeypatch.setattr(ask, "submit", submit)
    monkeypatch.setattr(ask, "wait", lambda *_: [])
    monkeypatch.setattr(ask, "endpoints_of", served)
    monkeypatch.setattr(slurm, "cancel", lambda lease: cancelled.append(lease) or "")
    monkeypatch.setattr(time, "sleep", lambda _s: None)
    told: list[str] = []
    assert ask.obtain(ask.Wish(2, Part(140)), [["-x", "--gres=gpu:2"]], told.append) == (43, ["endpoint"])
    assert asked == [[["-x", "--gres=gpu:2"]], *[[["-x", "--gres=shard:140"]] * 2] * 2]
    assert cancelled == [41, 42]
    assert told[0].startswith("lease 41: gpu1: GPU 0 already has leases; it is given back, and asked for again")
    answers += [NotStarted("no", 75)] * 9
    with pytest.raises(NotStarted):
        ask.obtain(ask.Wish(1, Part(140)), [["--gres=shard:140"]], told.append)
    assert len(cancelled) == 2 + ask.TRIES


@pytest.mark.parametrize(
    ("state", "words"), [("TIMEOUT", "time is over"), ("PREEMPTED", "higher priority"), ("NODE_FAIL", "gpu1 failed")]
)
def test_every_end_has_its_sentence(state: str, words: str) -> None:
    (job,) = parse_jobs(job_text(state=state))
    assert words in ask.ended_words(job)


def test_leases_are_listed_with_all_their_jobs() -> None:
    het = "ArrayJobId=41 ArrayTaskId={} "
    text = job_text(43, het=het.format(0)) + job_text(42, het=het.format(1), gres="shard:v100:70(IDX:3)")
    other = job_text(50, name="train", comment="(null)")
    (item,) = manage.leases(parse_jobs(text + other))
    assert (item.id, item.what, item.where, item.state) == (41, "1/2 GPU", "gpu1:2-3", "running")


def test_only_its_owner_extends_a_lease_and_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = "PartitionName=v100\n   AllowGroups=ALL QoS=N/A\n   MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0\n"
    calls: list[list[str]] = []

    def answer(args: list[str], **_more: object) -> subprocess.CompletedProcess[str]:
        calls.append(list(args))
        text = {"partition": partition, "qos": "02:00:00\n"}.get(
            args[2] if args[0] == "scontrol" else "qos", job_text()
        )
        return subprocess.CompletedProcess(args, 0, text, "")

    monkeypatch.setattr(slurm, "run", answer)
    monkeypatch.setenv("SUDO_UID", "1001")
    assert manage.extend_as_root(["41", "60"]) == "lease 41: 2 hours in all"
    assert calls[-1] == ["scontrol", "update", "JobId=41", "TimeLimit=120"]
    with pytest.raises(LeaseError, match=r"the pool allows 2 hours in all, this would be 2\.02"):
        manage.extend_as_root(["41", "61"])
    monkeypatch.setenv("SUDO_UID", "1002")
    with pytest.raises(LeaseError, match="lease 41 is alice's"):
        manage.extend_as_root(["41", "60"])
    for argv in ([], ["41"], ["41", "-1"], ["41; id", "1"], ["41", "1", "2"]):
        with pytest.raises(LeaseError, match="usage"):
            manage.extend_as_root(argv)


def test_slurm_that_is_not_there_or_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeaseError, match="scontrol is not installed here"):
        slurm.nodes()
    (tmp_path / "sleeps").write_text(f"#!{sys.executable}\nimport time; time.sleep(60)\n")
    (tmp_path / "sleeps").chmod(0o755)
    with pytest.raises(LeaseError, match="did not answer within 0 s"):
        slurm.run(["sleeps"], timeout_s=0.3)


def test_the_environment_of_another_job_does_not_change_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SBATCH_GRES", "gpu:8")
    monkeypatch.setenv("SBATCH_ACCOUNT", "research")
    kept = slurm.clean_environment()
    assert "SLURM_JOB_ID" not in kept
    assert "SBATCH_GRES" not in kept
    assert kept["SBATCH_ACCOUNT"] == "research"


def test_a_program_keeps_its_exit_code_and_gets_what_is_sent_to_us(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, threading; from toolkit.lease import running\n"
        "p = subprocess.Popen(sys.argv[1:], preexec_fn=running._die_with_parent)\n"
        "with running._signals_to(p): sys.exit(running._wait(p, threading.Event(), lambda: None))"
    )
    root = Path(__file__).parents[2]

    def go(*argv: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", code, *argv], cwd=root)

    assert go("sh", "-c", "exit 7").wait(20) == 7
    assert go("sh", "-c", "kill -9 $$").wait(20) == 137
    process = go("sh", "-c", f"trap 'exit 9' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 9
    (tmp_path / "pid").unlink()
    process = go("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.05)
    time.sleep(0.3)
    process.kill()  # as power loss for the tool alone: its program ends too
    process.wait(20)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the program outlived its lease")


def test_a_wish_is_one_of_p_and_m(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeaseError, match="give one of them"):
        lease_shared.make_wish(1, "0.5", 100, None, "", None, "run")
    monkeypatch.setattr(slurm, "nodes", lambda: NODES)
    monkeypatch.setattr(slurm, "jobs", list)
    monkeypatch.setattr(slurm, "default_partition", lambda: "all")
    facts = {"gpu1": {"gpus": [{"index": i, "name": "Emulated", "memory_mib": 256} for i in range(4)]}}
    monkeypatch.setattr(pool, "read_servers", lambda: facts)
    wish, parts = lease_shared.make_wish(1, None, 100, None, "", 2, "run")
    assert (wish.part.shards, parts[0][-1], "--time=120" in parts[0]) == (55, "--gres=shard:55", True)
    assert json.loads(COMMENT)["elastic-ai-lease"] == 1
    for hours in (0, -1, 1e9):
        with pytest.raises(LeaseError, match="--hours"):
            lease_shared.make_wish(1, None, None, None, "", hours, "run")


def test_a_program_that_is_not_there_is_found_before_any_gpu_is_asked_for() -> None:
    with pytest.raises(LeaseError, match="no-such-program: no such program"):
        running.find_program(["no-such-program"])
