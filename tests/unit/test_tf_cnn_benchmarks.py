"""tf_cnn_benchmarks: the whitepaper's command, and its output as every other training's. The outputs are made here, in
the form of the program's log at its last commit (tensorflow/benchmarks 8fb7907); none was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import tf_documents
from tests.support.site import CRITERIA, criterion, hardware, lab, real_results, result, verdict_of
from tests.support.tool_documents import doc, values
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.training import tf_cnn_benchmarks_probe
from validation.measures.training.facts import TrainingFacts
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Topology
from validation.plan.suites import PlanError, make_plan
from validation.probes.asked import make
from validation.probes.tf_rank import MARK
from validation.rules.fabric import load_fabric

PROGRAM = "/opt/benchmarks/tf_cnn_benchmarks.py"
K = Bom(
    model="PowerEdge C4140", gpu_model="Tesla V100-SXM2-16GB", cpu_model="Xeon Silver 4116", gpu_root_ports=1,
    gpu_count=4,
)  # fmt: skip


def site(bom: Bom = K) -> Topology:
    return hardware(("gpu1", "gpu2"), slots=4, bom=bom)


def plan_of(topology: Topology, program: str = PROGRAM, **options: str) -> Plan:
    given = {"tf_cnn_benchmarks": program, **options} if program else dict(options)
    return make_plan("run-1", topology, load_fabric("tcp10"), CRITERIA, ("preflight", "training"), given)


def jobs(plan: Plan) -> list[Measurement]:
    return [m for m in plan.measurements if m.kind == "tf-cnn-benchmarks"]


def job(ranks: int) -> Measurement:
    return next(m for m in jobs(plan_of(site())) if m.params["ranks"] == ranks)


def printed(m: Measurement, images_per_s: float, **changes: Any) -> str:
    return tf_documents.printed(m.params, images_per_s, **changes)


def read(m: Measurement, text: str, stderr: str = "") -> tuple[list[Any], TrainingFacts]:
    samples, facts = parse("tf-cnn-benchmarks", doc("tf-cnn-benchmarks", text, stderr=stderr), m.params)
    assert isinstance(facts, TrainingFacts)
    return samples, facts


def command(m: Measurement, **changes: Any) -> str:
    asked = make(tf_cnn_benchmarks_probe.Asked, {**job_for(m, site()).probe.params, **changes})
    return " ".join(tf_cnn_benchmarks_probe.command_for(asked))


def test_over_several_nodes_it_is_the_whitepapers_command() -> None:
    line = command(job(8))
    begin, _, program = line.partition(" -- ")
    assert begin.startswith(
        "mpirun -np 8 -H 10.78.0.11:4,10.78.0.12:4 --bind-to none --map-by slot --mca plm_rsh_args -p 50000"
    )
    for word in (
        "-x NCCL_IB_DISABLE=1",
        "-x NCCL_IB_CUDA_SUPPORT=1",
        "-x NCCL_SOCKET_IFNAME==fab0",
        "-x NCCL_DEBUG=INFO",
    ):
        assert word in begin
    assert program == (
        f"/usr/bin/python3 {PROGRAM} --variable_update=horovod --horovod_device=gpu --model=resnet50 --batch_size=128 "
        "--use_fp16=True --optimizer=momentum --momentum=0.9 --weight_decay=0.0001 --data_name=imagenet "
        "--datasets_num_private_threads=4 --num_warmup_batches=10 --num_batches=100 --display_every=10 "
        "--summary_verbosity=0 --device=gpu"
    )


def test_inside_a_node_one_process_has_all_gpus() -> None:
    line = command(job(4))
    assert "mpirun -np 1 -H 10.78.0.11:1 " in line
    words = "--variable_update=replicated --local_parameter_device=gpu --num_gpus=4 --all_reduce_spec=nccl"
    assert words in line
    assert "--all_reduce_spec" not in command(job(1))


def test_processors_get_what_they_need() -> None:
    line = command(job(8), device="cpu", precision="fp32")
    assert "--horovod_device=cpu" in line
    assert line.endswith("--device=cpu --data_format=NHWC")
    assert "--use_fp16=False" in line


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_rates_of_blocks_follow_from_the_lines_and_no_total_is_added_up(ranks: int) -> None:
    m = job(ranks)
    samples, facts = read(m, printed(m, 566.0 * ranks))
    rates = values(samples, "images_per_s")
    assert len(rates) == 10
    assert all(rate == pytest.approx(566.0 * ranks, rel=0.01) for rate in rates)
    assert (facts.framework, facts.tensorflow, facts.world_size) == ("tf_cnn_benchmarks", "1.14", ranks)
    assert facts.hosts == ("gpu1",) * min(ranks, 4) + ("gpu2",) * max(0, ranks - 4)
    assert values(samples, "loss")[0] == pytest.approx(8.199)


def test_a_rate_printed_too_coarsely_for_blocks_is_one_sample() -> None:
    m = job(1)
    samples, _ = read(m, printed(m, 3.6))
    assert [round(value, 1) for value in values(samples, "images_per_s")] == [3.6]


def test_a_batch_without_room_is_a_result() -> None:
    m = job(1)
    text = printed(m, 600.0).partition("Running warm up")[0]
    samples, facts = read(m, text, "ResourceExhaustedError: OOM when allocating tensor with shape[128,64,112,112]\n")
    assert samples == []
    assert facts.out_of_memory == "out of memory: a batch of 128 images does not fit"


DAMAGED: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text.replace(MARK, "x"), "no process said where it runs"),
    (lambda text: text[: text.rindex("total images/sec")], "7 totals of 8 processes"),
    (lambda text: text[: len(text) // 2], "4 processes of jobs of"),
    (lambda text: text.replace("\n100\timages", "\n99\timages"), r"lines of steps \[1, 10, .*99\]"),
    (
        lambda text: text.replace("\n100\timages", "\n100\timages", 1).replace("\n50\t", "\nx50\t", 1),
        "7 of 8 processes tell of step 50",
    ),
    (lambda text: text.replace("Mode:        training", "Mode:        evaluation"), "the mode is evaluation"),
    (
        lambda text: text.replace("Model:       resnet50", "Model:       trivial"),
        "model: resnet50 planned, but the tool reports trivial",
    ),
    (lambda text: text.replace("128 per device", "64 per device"), "images per device: 128 planned"),
    (lambda text: text.replace("Num batches: 100", "Num batches: 50"), "steps: 100 planned"),
    (lambda text: text.replace("TensorFlow:  1.14", "TensorFlow:  2.15", 1), "lines of 8 processes tell tensorflow"),
    (lambda text: text.replace("horovod/gpu", "horovod/cpu"), "and not on GPUs"),
    (lambda text: text.replace('"host": "gpu2"', '"host": "gpu1"'), "ran on 1 node, 2 planned"),
]


@pytest.mark.parametrize("at", range(len(DAMAGED)))
def test_a_damaged_output_is_refused(at: int) -> None:
    change, words = DAMAGED[at]
    m = job(8)
    with pytest.raises(ParseError, match=words):
        read(m, change(printed(m, 4500.0)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"global_batch": 128}, "128 images of a step at 128 per device are 1 device, 8 are planned"),
        ({"world": 1}, r"8 processes of jobs of \{1\}"),
        ({"total": 36000.0}, "a total of 36000 images/s does not fit its steps"),
        ({"loss": math.nan}, "the loss is not finite at step 1"),
    ],
)
def test_another_job_than_asked_is_refused(changes: dict[str, Any], words: str) -> None:
    m = job(8)
    with pytest.raises(ParseError, match=words):
        read(m, printed(m, 4500.0, **changes))


def test_processes_that_contradict_each_other_are_no_job() -> None:
    m = job(8)
    text = printed(m, 4500.0)
    first, _, rest = text.partition("total images/sec: ")
    with pytest.raises(ParseError, match=r"tell totals from 4500\.\d+ to 9999"):
        read(m, first + "total images/sec: 9999.00\n" + rest.partition("\n")[2])


def rated(bom: Bom, rates: dict[int, float]) -> CriterionVerdict:
    topology = site(bom)
    plan = plan_of(topology)

    def ran(m: Measurement) -> Any:
        if m.kind != "tf-cnn-benchmarks":
            return None
        samples, facts = read(m, printed(m, rates[int(str(m.params["ranks"]))]))
        return result(m, samples, facts=facts)

    return criterion(verdict_of(topology, plan, real_results(plan, spoil=ran)), "tn.tfcnn")  # type: ignore[no-any-return]


def test_it_is_judged_by_what_is_published_of_the_machine() -> None:
    assert rated(K, {1: 626.0, 4: 2425.0, 8: 4500.0}).verdict == "pass"
    slow = rated(K, {1: 626.0, 4: 2425.0, 8: 4000.0})
    assert slow.verdict == "fail"
    assert [j.value for j in slow.judgements if j.verdict == "fail"] == [pytest.approx(4000.0, rel=0.01)]
    other = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=4)
    assert {j.reason_code for j in rated(other, {1: 2500.0, 4: 9900.0, 8: 19000.0}).judgements} == {"reported"}


def test_without_the_option_nothing_is_planned() -> None:
    assert jobs(plan_of(site(), "")) == []


@pytest.mark.parametrize("program", ["tf_cnn_benchmarks.py", "/opt/../x.py", "/opt/x y.py", "/opt/x"])
def test_a_path_that_is_none_of_the_container_is_refused(program: str) -> None:
    with pytest.raises(PlanError, match="a path of the container is wanted"):
        plan_of(site(), program)


def test_of_networks_that_it_does_not_have_the_plan_says_so() -> None:
    plan = plan_of(lab())
    assert jobs(plan) == []
    assert any("tn.tfcnn" in left.criteria and "--models resnet50" in left.why for left in plan.left_out)
    chosen = plan_of(lab(), models="resnet50", batches="8")
    assert {m.params["device"] for m in jobs(chosen)} == {"cpu"}


def test_a_program_that_is_not_there_is_named_before_anything_runs(tmp_path: Path) -> None:
    enter = tmp_path / "enter"
    enter.write_text('#!/bin/sh\n[ "$1" = test ] && exit 1\necho started >&2\nexit 0\n')
    enter.chmod(0o755)
    params = {**job_for(job(8), site()).probe.params, "enter": str(enter)}
    found = tf_cnn_benchmarks_probe.probe(make(tf_cnn_benchmarks_probe.Asked, params))
    assert f"{PROGRAM} is not in the training container" in str(found["error"])
    assert "started" not in found["stderr"]
