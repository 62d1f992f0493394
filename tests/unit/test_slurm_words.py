"""Slurm's words for resources, states, hosts and times, in every form of 22.05 to 25.11, by all readers of them."""

from __future__ import annotations

import datetime
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_texts import FORMS, OBJECTS, answer, jobs_of, node_text, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_lists import duration_s, expand_hosts, gres_list, takes_work, tres
from toolkit.lease.jobs.slurm_text import Held, parse_gres, parse_nodes
from toolkit.lease.pool import gpus_of
from toolkit.lease.pool_file import PoolDescription
from validation.measures.pool import pool_use_probe

ROOT = Path(__file__).parents[2]


def program(name: str) -> Any:
    """A program of role monitoring, which stands by itself on the head."""
    folder = ROOT / "roles" / "monitoring" / "files"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


METRICS = program("pool_metrics")
#: A node's resources -> GPUs, class, shards.
NODES = [
    ("gpu:2080ti:8(S:0-1)", 8, "2080ti", 0),
    ("gpu:1g.10gb:7(S:0),gpu:h100:7(S:1)", 14, "1g.10gb", 0),
    ("vgpu:4,gpu:a100:2(S:0),no_consume_gpu:1", 2, "a100", 0),
    ("gpu:a100:2(S:0),gpu:1g.10gb:7", 9, "a100", 0),
    ("gpu:4", 4, "", 0),
    ("gpu", 1, "", 0),
    ("gpu:tesla", 1, "tesla", 0),
    ("gpu:8(S:0-1)", 8, "", 0),
    ("gpu(S:0-1)", 1, "", 0),
    ("gpu:v100:4(S:0,2),shard:v100:560(S:0,2)", 4, "v100", 560),
    ("gpu:v100:4,shard:1K", 4, "v100", 1024),
    ("gpu:h100:no_consume:8", 8, "h100", 0),
    ("gpu:(null):4", 4, "", 0),
    ("gpu:nvidia_a100-sxm4-80gb:8(S:0-7)", 8, "nvidia_a100-sxm4-80gb", 0),
    ("craynetwork:4,gpu:gh200:1,nic:2,mps:100", 1, "gh200", 0),
    ("hbm:16G,gpu:h100:8", 8, "h100", 0),
    ("gpu_mem:80,gpu-x:3,mygpu:a100:4,shards:5", 0, "", 0),
    ("(null)", 0, "", 0),
    ("N/A", 0, "", 0),
    ("", 0, "", 0),
]


@pytest.mark.parametrize(("gres", "gpus", "of", "shards"), NODES)
def test_a_nodes_gpus_are_those_that_slurm_has(gres: str, gpus: int, of: str, shards: int) -> None:
    text = node_text(gres=gres).replace(",gres/gpu=4,gres/shard=560", "")
    [node] = parse_nodes(text)
    assert (node.gpus, node.gpu_class, node.shards, node.problem) == (gpus, of, shards, "")
    line = " ".join(text.split())
    told = pool_use_probe.nodes([line])
    samples = {name: (labels["class"], value) for name, labels, value in METRICS.nodes([line], 0)}
    if not gpus:
        assert told == []
        assert samples == {}
        return
    assert [(one["class"], one["gpus"], one["shards"]) for one in told] == [(of or "gpu", gpus, shards)]
    # a class of MIG instances is told as such: the alert for missing GPUs leaves it out
    assert samples["elastic_ai_pool_gpus"] == ("1g.10gb" if "1g.10gb" in gres else of or "gpu", gpus)


@pytest.mark.parametrize("gres", ["gpu:1g.10gb", "gpu:a100:2x", "gpu::2:", "gpu:a:b:c:2", "gpu:a100:2(S:0"])
def test_resources_that_cannot_be_read_are_named_and_never_none(gres: str) -> None:
    [node] = parse_nodes(node_text(gres=gres))
    assert "are unknown here" in node.problem
    assert node.gpus == 4  # by what Slurm counts (CfgTRES)
    assert [(gpu.free, "unknown here" in gpu.state) for gpu in gpus_of([node], [], PoolDescription())] == [
        (0, True)
    ] * 4
    line = " ".join(node_text(gres=gres).split())
    assert [one["gpus"] for one in pool_use_probe.nodes([line])] == [4]
    assert ("elastic_ai_pool_gpus", {"node": "gpu1", "class": "gpu"}, 4) in METRICS.nodes([line], 0)


def test_what_an_administrator_wrote_is_none_of_slurms_words() -> None:
    line = " ".join(node_text(reason="State=DOWN Gres=gpu:h100:9 broken").split())
    assert [one["gpus"] for one in pool_use_probe.nodes([line])] == [4]
    up = [value for name, _, value in METRICS.nodes([line], 0) if name == "elastic_ai_pool_node_up"]
    assert up == [1]
    [node] = parse_nodes(node_text(reason="disk [sda] is bad"))
    assert node.reason == "disk [sda] is bad"


def test_gpus_of_a_mixed_node_have_their_own_class() -> None:
    nodes = parse_nodes(node_text(gres="gpu:1g.10gb:2(S:0),gpu:h100:1(S:1)"))
    assert [gpu.gpu_class for gpu in gpus_of(nodes, [], PoolDescription())] == ["1g.10gb", "1g.10gb", "h100"]


@pytest.mark.parametrize(
    ("detail", "held"),
    [
        ("gpu:2080ti:1(IDX:3)", [Held("gpu1", 3, 0)]),
        ("gpu:a100:2(IDX:0-1)", [Held("gpu1", 0, 0), Held("gpu1", 1, 0)]),
        ("gpu:a100:3(IDX:0-1,3)", [Held("gpu1", 0, 0), Held("gpu1", 1, 0), Held("gpu1", 3, 0)]),
        ("gpu:1(IDX:7)", [Held("gpu1", 7, 0)]),
        ("gpu:(null):1(IDX:7)", [Held("gpu1", 7, 0)]),
        ("nic:2(IDX:0-1),gpu:1g.10gb:1(IDX:4)", [Held("gpu1", 4, 0)]),
        ("vgpu:1(IDX:0),bandwidth(CNT:4),gpu:h100:1(IDX:2)", [Held("gpu1", 2, 0)]),
        ("shard:v100:35(35/140,0/140)", [Held("gpu1", 0, 35)]),
        ("shard:35(IDX:2)", [Held("gpu1", 2, 35)]),
        ("mps:50(50/100,0/100)", [Held("gpu1", 0, 50, 100)]),
        ("mps:h100:25(25/100)", [Held("gpu1", 0, 25, 100)]),
        ("mps:150(0/100,100/100,50/100)", [Held("gpu1", 1, 100, 100), Held("gpu1", 2, 50, 100)]),
        ("gpu:0(IDX:)", []),
        ("", []),
    ],
)
def test_what_a_job_holds_is_told(detail: str, held: list[Held]) -> None:
    assert parse_gres("gpu1", detail) == held


@pytest.mark.parametrize(
    "detail",
    [
        "gpu(CNT:2)",
        "gpu:a100(CNT:2)",
        "gpu:0(IDX:0-1)",
        "gpu:2(IDX:0)",
        "mps:50(IDX:0)",
        "mps:50((null))",
        "mps(CNT:50)",
        "shard:140((null))",
        "shard:35(36/35)",
        "mps:h100:25(25/100,25/100)",
        "gpu:1(IDX:0),gpu",
        "gpu:2080ti",
    ],
)
def test_what_cannot_be_told_is_a_problem_and_frees_no_gpu(detail: str) -> None:
    [job] = jobs_of(slurm_job(7, name="j", comment="", gres=detail))
    assert job.held == ()
    assert job.problem
    gpus = gpus_of(parse_nodes(node_text()), [job], PoolDescription())
    assert [gpu.free for gpu in gpus] == [0, 0, 0, 0]
    assert all("what job 7 has here is not known" in gpu.state for gpu in gpus)


def test_parts_by_mps_are_parts_of_the_pools_gpus() -> None:
    nodes = parse_nodes(node_text(gres="gpu:v100:2,shard:280"))
    [half] = jobs_of(slurm_job(7, name="j", comment="", gres="mps:50(50/100,0/100)"))
    assert [gpu.free for gpu in gpus_of(nodes, [half], PoolDescription())] == [70, 140]
    whole = parse_nodes(node_text(gres="gpu:v100:2").replace(",gres/shard=560", ""))
    assert [gpu.free for gpu in gpus_of(whole, [half], PoolDescription())] == [0, 1]


@pytest.mark.parametrize("counted", ["cpu=1,gres/gpu=2", "cpu=1,gres/gpu:a100=2", "cpu=1,gres/mps=50"])
def test_gpus_that_slurm_counts_and_does_not_name_are_a_problem(counted: str) -> None:
    [job] = jobs_of(slurm_job(7, name="j", gres="x", gres_detail=[], tres_alloc_str=counted))
    assert job.held == ()
    assert "does not say which" in job.problem
    [gone] = jobs_of(slurm_job(7, gres="x", gres_detail=[], tres_alloc_str=counted, state="COMPLETED"))
    [other] = jobs_of(slurm_job(7, gres="x", gres_detail=[], tres_alloc_str="cpu=1,gres/vgpu=2"))
    assert (gone.problem, other.problem) == ("", "")
    [ending] = jobs_of(slurm_job(7, gres="x", gres_detail=[], tres_alloc_str=counted, state="COMPLETING"))
    assert ending.problem.startswith("it is ending, and Slurm no longer says which of its ")


STATES = {
    True: (
        "IDLE",
        "MIXED",
        "ALLOCATED",
        "ALLOCATED+COMPLETING",
        "IDLE+COMPLETING",
        "IDLE+CLOUD",
        "MIXED+PLANNED",
        "IDLE+RESERVED",
        "IDLE+DYNAMIC_NORM",
        "MIXED+DYNAMIC_FUTURE",
        "MIXED+CLOUD+REBOOT_REQUESTED",
        "allocated+",
        "mixed-",
        "idle@",
        "planned",
        "reserved",
        "completing",
    ),
    False: (
        "DOWN",
        "DOWN*",
        "IDLE*",
        "MIXED*",
        "IDLE+NOT_RESPONDING",
        "IDLE+DRAIN",
        "ALLOCATED+DRAIN",
        "MIXED+DRAIN+REBOOT_REQUESTED",
        "DOWN+NOT_RESPONDING",
        "DOWN+REBOOT_ISSUED",
        "IDLE+MAINTENANCE",
        "IDLE+MAINTENANCE+RESERVED",
        "IDLE+INVALID_REG",
        "IDLE+FAIL",
        "ALLOCATED+FAIL",
        "FUTURE",
        "FUTURE+DYNAMIC_FUTURE",
        "ERROR",
        "UNKNOWN",
        "UNKNOWN+NOT_RESPONDING",
        "IDLE+POWERED_DOWN",
        "IDLE+CLOUD+POWERED_DOWN",
        "IDLE+POWERING_DOWN",
        "IDLE+POWERING_UP",
        "IDLE+POWER_DOWN",
        "IDLE+BLOCKED",
        "IDLE+EXTERNAL",
        "IDLE+?",
        "idle~",
        "idle#",
        "idle!",
        "idle%",
        "idle$",
        "idle^",
        "drained",
        "draining@",
        "drained*",
        "drng",
        "fail",
        "failing*",
        "inval",
        "maint",
        "reboot^",
        "down$",
        "blocked",
        "powering_down",
        "perfctrs",
        "",
    ),
}


@pytest.mark.parametrize(("state", "serves"), [(state, serves) for serves in STATES for state in STATES[serves]])
def test_a_node_serves_only_in_states_in_which_slurm_gives_it_work(state: str, serves: bool) -> None:
    assert takes_work(state) is serves
    if state:
        line = " ".join(node_text(state=state).split())
        up = [value for name, _, value in METRICS.nodes([line], 0) if name == "elastic_ai_pool_node_up"]
        assert up == [int(serves)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03,7],rack[1-2]n[1-2]", "gpu01 gpu02 gpu03 gpu7 rack1n1 rack1n2 rack2n1 rack2n2"),
        ("gpu[1-2,07],head", "gpu1 gpu2 gpu07 head"),
        ("r[09-11]-gpu", "r09-gpu r10-gpu r11-gpu"),
        ("a-b.example.net", "a-b.example.net"),
        ("(null)", ""),
        ("", ""),
    ],
)
def test_lists_of_hosts(text: str, names: str) -> None:
    assert expand_hosts(text) == tuple(names.split())


@pytest.mark.parametrize("text", ["gpu[1-2", "gpu1]", "gpu[a-b]", "gpu[]", "gpu 1", "gpu1,,gpu2", "rack[1[2]]"])
def test_no_lists_of_hosts(text: str) -> None:
    with pytest.raises(LeaseError, match="cannot be read"):
        expand_hosts(text)
    with pytest.raises(LeaseError, match="no list of hosts"):
        jobs_of(slurm_job(7, node=text))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None), ("NOT_SET", None), ("None", None), ("INVALID", None), ("Partition_Limit", None),
        ("", None), ("Unknown", None), ("N/A", None),
        ("1-00:00:00", 86400), ("2-12", 216000), ("1-02:30", 95400), ("01:00:00", 3600), ("30:00", 1800), ("60", 3600),
    ],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


def test_counts_of_tres() -> None:
    text = "cpu=1,mem=5G,billing=1,gres/gpu=3,gres/gpu:a100=2,gres/gpu:1g.10gb=1,gres/vgpu=4,gres/shard=1K"
    assert (tres(text, "gres/gpu"), tres(text, "gres/shard"), tres(text, "gres/mps")) == (3, 1024, 0)
    assert tres("gres/gpu:a100=2,gres/gpu:h100=1", "gres/gpu") == 3
    assert METRICS.gpus_of("gres/gpu:a100=2,gres/gpu:h100=1,gres/vgpu=9", 0) == 3
    assert METRICS.gpus_of("gres/gpu=2,gres/gpu:a100=2,gres/shard=70,gres/mps=50", 140) == 3
    assert METRICS.gpus_of("gres/gpu=1,gres/shard=1K", 128) == 9
    with pytest.raises(ValueError, match="gpu:1g"):
        gres_list("gpu:1g.10gb")


@pytest.mark.parametrize("form", FORMS)
def test_numbers_that_are_not_set_and_details_that_are_null(form: str) -> None:
    [job] = json.loads(answer(slurm_job(7, minutes=None), form))["jobs"]
    if form == OBJECTS:
        job["time_limit"] = {"set": True, "infinite": True, "number": None}
        job["array_task_id"] = {"set": False, "infinite": False}
    job["nodes"], job["gres_detail"] = "gpu[1-2]", [None, "gpu:1(IDX:0)"]
    [read] = parse_jobs(json.dumps({"jobs": [job], "errors": []}).encode())
    assert (read.time_limit_s, read.held) == (None, (Held("gpu2", 0, 0),))
    job["gres_detail"], job["tres_alloc_str"] = None, ""
    [read] = parse_jobs(json.dumps({"jobs": [job], "errors": []}).encode())
    assert (read.held, read.problem) == ((), "")


@pytest.mark.parametrize(
    ("state", "counted"),
    [
        ("RUNNING", "running"), ("CONFIGURING", "running"), ("SUSPENDED", "running"), ("COMPLETING", "running"),
        ("STAGE_OUT", "running"), ("PENDING", "pending"), ("COMPLETED", None), ("REQUEUED", None),
    ],
)  # fmt: skip
def test_a_job_counts_as_long_as_it_holds_gpus(state: str, counted: str | None) -> None:
    line = f"{state:<20}{'anna':<40}{'Unknown':<25}{'cpu=1,gres/gpu:a100=2,gres/vgpu=1':<300}{'research':<40}"
    samples = METRICS.jobs([line], 0, datetime.datetime(2026, 11, 25))
    told = [(labels["state"], value) for name, labels, value in samples if name == "elastic_ai_pool_user_gpus"]
    assert told == ([(counted, 2)] if counted else [])
    assert samples[-1] == ("elastic_ai_pool_longest_wait_seconds", {}, 0.0)


def test_a_state_among_flags_is_the_base_state() -> None:
    [job] = slurm_job(7)
    for words, state in ((["POWER_UP_NODE", "RUNNING"], "RUNNING"), (["RUNNING", "LAUNCH_FAILED"], "RUNNING")):
        assert parse_jobs(answer([job | {"job_state": words}]))[0].state == state
