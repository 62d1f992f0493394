"""What a training job may do in place of what was asked: each is refused, or named, on a log of it.

The logs are made here, in the forms of Open MPI 4.1, NCCL 2.2x and this program; those that a lab can record stand in
test_training_recorded.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT
from tests.support.tool_documents import doc, values
from tests.support.tool_texts import training as report_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.training import training_short_probe
from validation.probes import train_parts
from validation.probes.asked import make
from validation.probes.train_parts import mixed
from validation.probes.train_trouble import trouble

HOSTS = ["gpu1", "gpu1", "gpu2", "gpu2"]
PARAMS = {
    "ranks": 4, "ranks_per_node": 2, "warmup": 10, "steps": 100, "batch": 128, "model": "resnet50", "precision": "fp16",
    "device": "gpu",
}  # fmt: skip


def report(**changes: Any) -> dict[str, Any]:
    return {**json.loads(report_of(PARAMS, HOSTS, 5000.0)), **changes}


def read(log: str = "", **changes: Any) -> Any:
    return parse("training-short", doc("training-short", log + json.dumps(report(**changes)) + "\n"), PARAMS)


def test_a_job_on_gpus_tells_its_rate_and_where_the_time_goes() -> None:
    samples, facts = read()
    assert len(values(samples, "images_per_s")) == 100
    assert values(samples, "allreduce_ratio") == [0.21, 0.2, 0.22, 0.2, 0.21]
    assert (facts.model, facts.precision, facts.allreduce_by) == ("resnet50", "fp16", "kernels")
    assert facts.compute_s == pytest.approx(0.8 * 4 * 128 / 5000, rel=0.01)


def test_without_kernels_the_share_of_the_all_reduce_is_that_of_waiting() -> None:
    samples, facts = read(allreduce_kernels=[])
    assert len(values(samples, "allreduce_ratio")) == 100
    assert values(samples, "allreduce_ratio")[0] == pytest.approx(0.15, rel=0.01)
    assert facts.allreduce_by == "waits"
    with pytest.raises(ParseError, match=r"takes 1\.50 of a step"):
        read(allreduce_kernels=[], allreduce_s=[1.5 * s for s in report()["step_s"]])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank_images_per_s": [5000.0] * 4}, r"add up to 4\.0 times the job's: each reports the total"),
        ({"rank_images_per_s": [1250.0] * 3}, "rates of 3 of 4 ranks"),
        (
            {"images_per_s": [5000.0] * 110, "step_s": [512 / 5000] * 110},
            "110 rates of 100 measured steps: the warm-up is counted",
        ),
        ({"devices": ["GPU 0000:17:00.0 GPU"] * 4}, "2 ranks share GPU 0000:17:00.0 GPU of gpu1"),
        ({"devices": ["GPU 0000:17:00.0 GPU", "cpu x86_64"] * 2}, "2 of 4 ranks did not train on a GPU"),
        ({"devices": []}, "some of 4 ranks did not train on a GPU"),
        ({"loss_finite": False, "loss_lost_step": 3, "loss_last": None}, "not finite from step 3 on"),
        ({"products": {"float32": 54}}, "fp16 was asked for, and there were 54 of 54 products in float32"),
        ({"products": {"float16": 50, "float32": 4}}, "4 of 54 products in float32"),
        ({"products": {}}, "fp16 was asked for, and there were no products"),
        ({"model": "small"}, "model: resnet50 planned, but the tool reports small"),
        ({"precision": "fp32"}, "precision: fp16 planned, but the tool reports fp32"),
        ({"world_size": 1, "hosts": ["gpu1"]}, "world_size: 4 planned"),
    ],
)
def test_another_job_than_asked_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        read(**changes)


@pytest.mark.parametrize(("precision", "took", "words"), [("fp32", True, "tf32"), ("tf32", False, "fp32")])
def test_fp32_and_tf32_are_told_apart_by_what_a_product_loses(precision: str, took: bool, words: str) -> None:
    made = report(precision=precision, products={"float32": 54}, tf32=took)
    asked = {**PARAMS, "precision": precision}
    with pytest.raises(ParseError, match=f"{precision} was asked for, and the GPUs computed in {words}"):
        parse("training-short", doc("training-short", json.dumps(made)), asked)
    parse("training-short", doc("training-short", json.dumps({**made, "tf32": not took})), asked)


def test_n_jobs_of_one_rank_are_no_job_of_n() -> None:
    alone = json.dumps(report(world_size=1, hosts=["gpu1"])) + "\n"
    with pytest.raises(ParseError, match="4 reports from rank 0, exactly one is expected"):
        parse("training-short", doc("training-short", alone * 4), PARAMS)


def test_a_batch_without_room_is_what_the_job_found_out() -> None:
    words = "out of memory: a batch of 128 images does not fit on GPU 0000:17:00.0 GPU"
    made = {
        key: value for key, value in report().items() if key not in ("images_per_s", "step_s", "losses", "products")
    }
    samples, facts = parse("training-short", doc("training-short", json.dumps({**made, "cannot": words})), PARAMS)
    assert not samples
    assert facts.out_of_memory == words
    with pytest.raises(ParseError, match="is not here"):
        parse(
            "training-short", doc("training-short", json.dumps({**made, "cannot": "torchvision is not here"})), PARAMS
        )


def test_sockets_of_nccl_on_docker0_lead_nowhere() -> None:
    line = "gpu1:71:80 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>\n"
    with pytest.raises(ParseError, match="NCCL went over docker0, which leads to no other node"):
        read(log=line)
    _, facts = read(log=line.replace("docker0:172.17.0.1", "fab0:10.78.0.13"))
    assert not facts.carriers


def test_nccl_on_sockets_is_seen_in_its_own_words() -> None:
    line = "gpu1:71:80 [0] NCCL INFO Using network Socket\n"
    _, facts = read(log=line)
    assert [str(carrier) for carrier in facts.carriers] == ["NCCL: Socket"]
    assert not facts.carriers[0].rdma


def asked() -> training_short_probe.Asked:
    given = {"hosts": ["10.0.0.1:2", "10.0.0.2:2"], "networks": ["10.0.0.0/24"]}
    return make(training_short_probe.Asked, {**given, **{k: v for k, v in PARAMS.items() if k != "ranks_per_node"}})


def test_the_probe_says_from_which_step_on_the_loss_is_none() -> None:
    assert training_short_probe.wrong(asked(), report()) is None
    lost = report(loss_finite=False, loss_lost_step=3, loss_last=None)
    assert "had a loss that is not a number from step 3 of 110 on" in str(training_short_probe.wrong(asked(), lost))


def test_the_probe_says_why_a_network_was_not_trained() -> None:
    missing = "Inception-v4 is one of timm's networks, which is not here: No module named 'timm'"
    assert training_short_probe.wrong(asked(), report(cannot=missing)) == f"resnet50 was not trained: {missing}"
    assert training_short_probe.wrong(asked(), report(cannot="out of memory: a batch of 128 images")) is None


GONE = """\
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[46461,0],0] on node head
  Remote daemon: [[46461,0],2] on node 10.78.1.14

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
Connection to 10.78.1.14 closed by remote host.
"""
KILLED = """\
gpu1:71:80 [0] NCCL INFO Using network IB
gpu2:90:99 [1] NCCL INFO comm 0x1 rank 3 nranks 4 - Init COMPLETE
gpu2:90:99 [1] NCCL WARN NET/IB : Got completion with error 12
--------------------------------------------------------------------------
mpirun noticed that process rank 3 with PID 90 on node gpu2 exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
EXITED = """\
[rank 1 on gpu1] Traceback (most recent call last):
[rank 1 on gpu1]   File "train_cnn.py", line 1, in step
[rank 1 on gpu1] RuntimeError: CUDA error: an illegal memory access was encountered
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[58291,1],1]
  Exit code:    1
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (KILLED, "rank 3 on gpu2 was ended by signal 9 (Killed); its last lines: gpu2:90:99 [1] NCCL INFO comm"),
        (KILLED, "Got completion with error 12"),
        (EXITED, "rank 1 on gpu1 ended with exit status 1; its last lines: Traceback"),
        (EXITED, "RuntimeError: CUDA error: an illegal memory access"),
        (KILLED.splitlines()[-2] + "\n", "rank 3 on gpu2 was ended by signal 9 (Killed), without a word"),
        ("Host key verification failed.\r\n", "ssh asks whether it knows a node's host key"),
        ("root@10.0.0.2: Permission denied (publickey).\n", "ssh asks for a password"),
        ("[gpu1][[1,1],0][btl_tcp_endpoint.c:625] connect() to 172.17.0.1 on docker0 failed\n", "as docker0"),
        ("Open MPI accepted a TCP connection from what appears to be a\nanother Open MPI process", "as docker0"),
        ("The user-provided time limit for job execution has been reached:\n", "did not end within its time"),
        (GONE, "the node 10.78.1.14 was lost in the middle of the job"),
        (GONE.rpartition("-\n")[2], "the node 10.78.1.14 was lost in the middle of the job"),
        ("nothing that is known\n", ""),
    ],
)
def test_a_job_that_failed_is_explained(log: str, words: str) -> None:
    found = trouble(log)
    assert words in found
    assert bool(words) == bool(found)


RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:545] Read error [127.0.1.1]:14208: Connection reset by peer."
LIST = """\
train_cnn.py FAILED
------------------------------------------------------------
Failures:
{others}------------------------------------------------------------
Root Cause (first observed failure):
{first}============================================================
"""


def listed(*ended: tuple[int, int]) -> str:
    """What torchrun of torch 2.14 prints of ranks and their exit codes, the one that it saw first in front."""
    rows = [
        f"[{at}]:\n  time      : 2026-11-23_11:41:43\n  host      : vm\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {890 + rank}) \n  error_file: <N/A>\n"
        for at, (rank, code) in enumerate(ended)
    ]
    return LIST.format(first=rows[0], others="".join(rows[1:]) or "  <NO_OTHER_FAILURES>\n")


@pytest.mark.parametrize(
    ("said", "ended", "words"),
    [
        ({}, [(1, -9)], "rank 1 on vm was ended by signal 9, without a word"),
        ({0: RESET, 2: RESET}, [(1, -9), (0, 1), (2, 1)], "rank 1 on vm was ended by signal 9, without a word"),
        ({0: RESET, 2: RESET}, [(0, 1), (2, 1), (1, -9)], "rank 1 on vm was ended by signal 9, without a word"),
        ({0: RESET}, [(0, 1), (2, -15), (1, -11)], "rank 1 on vm was ended by signal 11"),
        (
            {0: RESET, 1: "RuntimeError: CUDA error: an illegal memory access", 2: RESET},
            [(0, 1), (1, 1), (2, 1)],
            "rank 1 on vm ended with exit status 1; its last lines: RuntimeError: CUDA error",
        ),
        ({0: RESET}, [(0, 1), (2, -15)], "rank 0 on vm ended with exit status 1; its last lines: RuntimeError: [gloo"),
    ],
)
def test_torchruns_first_failure_may_be_one_that_lost_its_partner(
    said: dict[int, str], ended: list[tuple[int, int]], words: str
) -> None:
    log = "".join(f"[rank {rank} on vm] {text}\n" for rank, text in said.items())
    assert trouble(log + listed(*ended)).startswith(words)


def test_the_result_names_the_rank_that_died(tmp_path: Any) -> None:
    args = asked()
    args.enter = str(tmp_path / "enter")
    (tmp_path / "log").write_text(EXITED)
    (tmp_path / "enter").write_text(f"#!/bin/sh\ncat {tmp_path}/log >&2\nexit 1\n")
    (tmp_path / "enter").chmod(0o755)
    found = training_short_probe.probe(args)
    assert str(found["error"]).startswith("rank 1 on gpu1 ended with exit status 1; its last lines: Traceback")
    assert "ended with exit status 1" in str(found["error"])


def told(*said: str) -> list[dict[str, str]]:
    """`gpu1 2.14.1 0.28.1 2.15.1`: a host and its torch, Horovod and TensorFlow; `-`: none; `+`: Horovod has both."""
    rows = [[word.replace("-", "") for word in one.rstrip("+").split()] for one in said]
    found = [dict(zip(("host", "torch", "horovod", "tensorflow"), row, strict=True)) for row in rows]
    return [
        {**one, "horovod_tensorflow": one["horovod"] * text.endswith("+")}
        for one, text in zip(found, said, strict=True)
    ]


@pytest.mark.parametrize(
    ("said", "framework", "words"),
    [
        (("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 0.28.1 -"), "auto", ""),
        (("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 - -"), "auto", "gpu1 has horovod 0.28.1, gpu2 has no horovod"),
        (("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 - -"), "ddp", ""),
        (("gpu1 2.14.1 - -", "gpu2 2.13.0 - -"), "ddp", "gpu1 has torch 2.14.1, gpu2 has torch 2.13.0"),
        (("gpu1 2.14.1 0.28.1 -", "gpu2 - 0.28.1 2.15.1"), "auto", "gpu2 has no torch and tensorflow 2.15.1"),
        (("gpu1 - - -", "gpu2 - - -"), "auto", "no torch in the training container of gpu1, gpu2"),
        (("gpu1 2.14.1 - -", "gpu2 2.14.1 - -"), "horovod", "Horovod is asked for, and the image of gpu1 has none"),
        (("gpu1 2.14.1 - -", "gpu2 2.14.1 - -"), "auto", ""),
        (("gpu1 2.14.1 0.28.1 2.15.1+", "gpu2 2.14.1 0.28.1 2.15.1"), "auto", ""),
        (("gpu1 2.14.1 0.28.1 2.15.1+", "gpu2 2.13.0 0.28.1 2.15.1+"), "tensorflow", ""),
        (("gpu1 - 0.28.1 2.15.1+",), "tensorflow", ""),
        (
            ("gpu1 2.14.1 0.28.1 2.15.1+", "gpu2 2.14.1 0.28.1 -"),
            "tensorflow",
            "mixed frameworks: gpu1 has tensorflow 2.15.1 and Horovod for TensorFlow 0.28.1, "
            "gpu2 has no tensorflow and no Horovod for TensorFlow; every server needs the same image",
        ),
        (
            ("gpu1 2.14.1 0.28.1 2.15.1+", "gpu2 2.14.1 0.28.1 2.15.1"),
            "tensorflow",
            "gpu2 has no Horovod for TensorFlow",
        ),
        (
            ("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 0.28.1 -"),
            "tensorflow",
            "no TensorFlow in the training container of gpu1, gpu2; a training image with it is made by "
            "horovod_with_tensorflow",
        ),
        (("gpu1 2.14.1 0.28.1 2.15.1",), "tensorflow", "Horovod in the training container of gpu1 is not built for"),
    ],
)
def test_what_keeps_nodes_from_training_together(said: tuple[str, ...], framework: str, words: str) -> None:
    found = mixed(told(*said), framework)
    assert words in found
    assert bool(words) == bool(found)


def container(folder: Path, *said: dict[str, str], code: int = 0) -> tuple[Path, Path]:
    """A container whose mpirun starts real processes for what the nodes say, and only notes that a training began."""
    enter, began = folder / "enter", folder / "began"
    lines = "\n".join(train_parts.MARK + json.dumps(one) for one in said)
    (folder / "said").write_text(lines + "\n")
    enter.write_text(
        f'#!/bin/sh\ncase "$*" in *train_parts.py*) cat {folder}/said; exit {code};; '
        f"*train_cnn.py*) touch {began};; esac\n"
    )
    enter.chmod(0o755)
    return enter, began


def test_mixed_frameworks_are_refused_before_the_job_starts(tmp_path: Path) -> None:
    args = asked()
    enter, began = container(tmp_path, *told("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 - -"))
    args.enter = str(enter)
    found = training_short_probe.probe(args)
    assert str(found["error"]).startswith("mixed frameworks: gpu1 has horovod 0.28.1, gpu2 has no horovod")
    assert not began.exists()
    assert "-np 2 -H 10.0.0.1:1,10.0.0.2:1 " in " ".join(found["command"]), "each server once"


def test_horovod_asked_of_an_image_without_it_is_refused(tmp_path: Path) -> None:
    args = asked()
    args.framework = "horovod"
    enter, began = container(tmp_path, *told("gpu1 2.14.1 - -", "gpu2 2.14.1 - -"))
    args.enter = str(enter)
    assert "Horovod is asked for" in str(training_short_probe.probe(args)["error"])
    assert not began.exists()


def test_servers_that_are_alike_train(tmp_path: Path) -> None:
    args = asked()
    enter, began = container(tmp_path, *told("gpu1 2.14.1 0.28.1 -", "gpu2 2.14.1 0.28.1 -"))
    args.enter = str(enter)
    training_short_probe.probe(args)
    assert began.exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [((), "0 of 2 servers said"), (({"host": "gpu1"}, {"host": "gpu2"}), "cannot be read: KeyError")],
)
def test_what_servers_say_that_cannot_be_read_is_an_error(tmp_path: Path, said: Any, words: str) -> None:
    args = asked()
    args.enter = str(container(tmp_path, *said)[0])
    assert words in str(training_short_probe.probe(args)["error"])


def test_what_a_container_has_is_told_without_importing_it() -> None:
    ran = subprocess.run([sys.executable, "-I", train_parts.__file__], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(train_parts.MARK)
    assert set(json.loads(ran.stdout[len(train_parts.MARK) :])) == {"host", *train_parts.PARTS}
    assert train_parts.version("pytest") == pytest.__version__
    assert train_parts.version("json") == "?"
    assert train_parts.version("no_such_module") == ""


def test_every_test_of_the_tables_is_there() -> None:
    page = (ROOT / "docs/explanation/measuring/training-traps.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    texts = [
        path.read_text()
        for folder in ("unit", "functional", "engine")
        for path in (ROOT / "tests" / folder).glob("*.py")
    ]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 15
    assert named <= there, named - there
