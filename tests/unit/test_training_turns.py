"""Trainings in several ways in turns: what is planned, what the probe runs, what is read of it, how it is judged."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.site import ALL, CRITERIA, criterion, hardware, lab, plan_of, real_results, result, run_info
from tests.support.site import judged as in_lab
from tests.support.turns_documents import BTL, NCCL, UCX, document, healthy_turns, job
from validation.analysis.scaling import average_rate
from validation.judging.run_data import RunData
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.training import training_short_probe, training_turns_probe
from validation.measures.training.facts import TurnsFacts
from validation.measures.training.turns import knee_of
from validation.measures.training.turns_plan import layouts
from validation.model import Bom, CriterionVerdict, Measurement, Plan, Result, Topology
from validation.plan.suites import make_plan
from validation.probes.asked import make
from validation.probes.tool import Ran
from validation.probes.train_world import parser_of
from validation.rules.fabric import load_fabric
from validation.verdict.judge import judge

V100 = Bom(gpu_model="Tesla V100-SXM2-16GB", gpu_count=4)
KIND = "training-turns"


def gpus(rdma: bool = True) -> Topology:
    found = hardware(("head", "gpu1", "gpu2"), slots=4, bom=V100)
    nodes = [n.model_copy(update={"ports": tuple(p.model_copy(update={"rdma": rdma}) for p in n.ports)})
             for n in found.nodes]  # fmt: skip
    return found.model_copy(update={"nodes": tuple(nodes)})


def planned(topology: Topology | None = None, fabric: str = "roce100", **options: Any) -> Plan:
    return make_plan("run-1", topology or gpus(), load_fabric(fabric), CRITERIA, ("preflight", "training"), options)


def turns(plan: Plan) -> dict[str, Measurement]:
    return {m.id.removeprefix(f"{KIND}."): m for m in plan.measurements if m.kind == KIND}


def verdict(id_: str, topology: Topology | None = None, fabric: str = "roce100", **how: Any) -> CriterionVerdict:
    """Of a run of which `how` says what the trainings in turns printed."""
    where = topology or gpus()
    plan = planned(where, fabric)

    def train(m: Measurement) -> Result | None:
        if m.kind == KIND:
            return healthy_turns(m, **how)
        return result(m, []) if m.kind != "facts" else None

    found = judge(
        RunData(
            run_info(where, plan, fabric=fabric),
            where,
            plan,
            load_fabric(fabric),
            CRITERIA,
            real_results(plan, spoil=train),
        )
    )
    made: CriterionVerdict = criterion(found, id_)
    return made


# --- the plan


def test_a_world_is_shared_by_as_many_nodes_as_divide_it() -> None:
    assert layouts(8, 4) == ("1x8", "2x4", "4x2")
    assert layouts(8, 3) == ("1x8", "2x4")
    assert layouts(2, 2) == ("1x2", "2x1")
    assert layouts(8, 20) == ("1x8", "2x4", "4x2", "8x1")
    assert layouts(1, 4) == layouts(3, 2) == layouts(8, 1) == ()


def test_on_gpus_with_rdma_everything_is_compared() -> None:
    found = turns(planned())
    assert {name: m.params["ways"] for name, m in found.items() if not name.endswith("input")} == {
        "resnet50-b128-fp16.scale": ("1x1", "1x4", "2x4", "torchrun"),
        "resnet50-b128-fp16.outup": ("1x4", "2x2"),
        "vgg16-b128-fp16.rdma": ("rdma", "tcp"),
        "resnet50-b128-fp16.rdma": ("rdma", "tcp"),
        "resnet50-b128-fp16.gdr": ("gdr-on", "gdr-off"),
    }
    assert {"alexnet-b128-fp16.input", "resnet50-b128-fp16.input"} < set(found)
    fed = found["alexnet-b128-fp16.input"]
    assert fed.criteria == ("tn.cpu", "tn.cores")
    assert (fed.params["hosts"], fed.params["ranks"]) == (("gpu1",), 4)
    assert {m.params["steps"] for m in found.values()} == {50}


def test_the_lab_takes_few_steps_of_what_it_can() -> None:
    found = turns(plan_of(lab(), ALL))
    assert {name: m.params["ways"] for name, m in found.items()} == {
        "scale": ("1x1", "2x1", "torchrun"),
        "outup": ("1x2", "2x1"),
        "input": ("synthetic", "real", "cores-1", "cores-2"),
    }
    assert {m.params["steps"] for m in found.values()} == {20}
    assert sum(m.estimated_s for m in found.values()) <= 125


def test_networks_that_were_chosen_are_the_only_ones() -> None:
    found = turns(planned(models="resnet50"))
    assert not [name for name in found if not name.startswith("resnet50")]


@pytest.mark.parametrize(
    ("topology", "fabric", "id_", "words"),
    [
        (gpus(rdma=False), "roce100", "tn.rdma", "the first fabric port of gpu1, gpu2 is TCP-only"),
        (gpus(rdma=False), "roce100", "tn.gdr", "the first fabric port of gpu1, gpu2 is TCP-only"),
        (hardware(("gpu1",), slots=4, bom=V100), "tcp10", "tn.outup", "there are no two GPU servers"),
        (hardware(("gpu1",), slots=4, bom=V100), "tcp10", "tn.twin", "there are no two GPU servers"),
        (hardware(("gpu1", "gpu2"), slots=1), "tcp10", "tn.outup", "1 rank of a server cannot be shared"),
    ],
    ids=["tcp-only", "no direct", "alone", "no twin", "one rank"],
)  # fmt: skip
def test_what_cannot_be_compared_is_left_out_with_its_reason(
    topology: Topology, fabric: str, id_: str, words: str
) -> None:
    left = [found.why for found in planned(topology, fabric).left_out if id_ in found.criteria]
    assert any(words in why for why in left), left


# --- the probe


def asked(m: Measurement, topology: Topology) -> training_turns_probe.Asked:
    return make(training_turns_probe.Asked, job_for(m, topology).probe.params)


def command(args: training_turns_probe.Asked, way: str) -> str:
    return " ".join(training_short_probe.command_for(training_turns_probe.job_of(args, way)))


def test_each_way_changes_one_thing_of_the_job() -> None:
    found = turns(planned())
    args = asked(found["resnet50-b128-fp16.outup"], gpus())
    one, two = command(args, "1x4"), command(args, "2x2")
    assert "-np 4" in one
    assert "-np 4" in two
    assert one.count(":4 ") == two.count(":2,") == 1
    assert one.count("@") == 1
    assert two.count("@") == 2
    args = asked(found["vgg16-b128-fp16.rdma"], gpus())
    assert "--mca pml ucx" in command(args, "rdma")
    assert "--mca btl tcp,self" in command(args, "tcp")
    assert "NCCL_IB_DISABLE=0" in command(args, "rdma")
    assert "NCCL_IB_DISABLE=1" in command(args, "tcp")
    assert "NCCL_NET_GDR_LEVEL" not in command(args, "gdr-on")
    assert "-x NCCL_NET_GDR_LEVEL=LOC" in command(args, "gdr-off")
    args = asked(found["alexnet-b128-fp16.input"], gpus())
    assert "--images" not in command(args, "synthetic")
    assert "--images real" in command(args, "real")
    assert "--images real --cores 4" in command(args, "cores-4")


def test_torchrun_starts_the_same_program_with_what_mpirun_would_export() -> None:
    args = asked(turns(planned())["resnet50-b128-fp16.scale"], gpus())
    words = training_short_probe.command_for(training_turns_probe.job_of(args, "torchrun"))
    assert words[:2] == [args.python, "/etc/elastic-ai/training/torchrun.py"]
    assert words[2:4] == ["-H", ",".join(args.hosts)]
    assert words[6:8] == ["-I", str(training_short_probe.PROGRAM)]
    assert words[words.index("--framework") + 1] == "ddp"
    assert "NCCL_IB_DISABLE=0" in words
    assert words[words.index("--ends") + 1] == ",".join(args.ends)
    assert "mpirun" not in words
    parsed = parser_of("").parse_known_args(words[8:])[0]
    assert parsed.set == training_short_probe.nccl_variables(args)


def test_torchrun_of_one_machine_does_not_wait_for_ranks_that_have_ended() -> None:
    args = training_short_probe.Asked(ranks=2, hosts=["a:2"], networks=[], warmup=1, steps=1, batch=1, enter="")
    words = training_short_probe.command_for(replace(args, launcher="torchrun"))
    assert "--monitor_interval=0.1" in words[: words.index(str(training_short_probe.PROGRAM))]


@pytest.mark.parametrize("way", ["3x1", "2x", "fast", "cores-0", "cores-x", ""])
def test_a_way_that_is_none_is_refused(way: str) -> None:
    args = asked(turns(planned())["resnet50-b128-fp16.outup"], gpus())
    with pytest.raises(ValueError, match=r"hosts|unknown way"):
        training_turns_probe.job_of(args, way)


def test_ways_are_taken_in_turns_and_one_that_cannot_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    m = turns(plan_of(lab(), ALL))["input"]
    args, taken = asked(m, lab()), []

    def train(job_: training_short_probe.Asked) -> tuple[Ran, dict[str, Any], str | None]:
        way = f"cores-{job_.cores}" if job_.cores else job_.images
        taken.append(way)
        cannot = "too few processors" if way == "cores-2" else ""
        text = job(m, way, 100.0, cannot=cannot)
        return Ran(["mpirun"], 0, text, "a log\n"), json.loads(text), None

    monkeypatch.setattr(training_short_probe, "train", train)
    made = training_turns_probe.probe(args)
    assert taken == ["synthetic", "real", "cores-1", "cores-2", "synthetic", "real", "cores-1"]
    assert made["error"] is None
    _, facts = parse(KIND, made, m.params)
    assert isinstance(facts, TurnsFacts)
    assert [turn.cannot for turn in facts.turns if turn.cannot] == ["too few processors"]


def test_a_job_that_fails_ends_all_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    m = turns(planned())["vgg16-b128-fp16.rdma"]
    monkeypatch.setattr(training_short_probe, "alike", lambda _: (None, None))
    monkeypatch.setattr(training_short_probe, "train", lambda _: (Ran(["mpirun"], 1, "", "no route"), {}, None))
    made = training_turns_probe.probe(asked(m, gpus()))
    assert made["returncode"] == 1
    assert str(made["error"]).startswith("turn 1, rdma: ")
    assert "mpirun ended with exit status 1: no route" in str(made["error"])


def test_servers_that_train_with_different_frameworks_are_named_before_any_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m, trained = turns(planned())["vgg16-b128-fp16.rdma"], []
    looked = Ran(["mpirun"], 0, "", "")
    monkeypatch.setattr(training_short_probe, "alike", lambda _: (looked, "gpu1 has Horovod, gpu2 torch alone"))
    monkeypatch.setattr(training_short_probe, "train", trained.append)
    assert training_turns_probe.probe(asked(m, gpus()))["error"] == "gpu1 has Horovod, gpu2 torch alone"
    assert trained == []


# --- the parser


def read(m: Measurement, doc: Any) -> TurnsFacts:
    _, facts = parse(KIND, doc, m.params)
    assert isinstance(facts, TurnsFacts)
    return facts


def test_each_turn_is_read_with_what_its_log_proves() -> None:
    m = turns(planned())["resnet50-b128-fp16.gdr"]
    facts = read(m, document(m))
    assert [(turn.way, turn.turn, turn.gpudirect) for turn in facts.turns] == [
        ("gdr-on", 1, True), ("gdr-off", 1, False), ("gdr-on", 2, True), ("gdr-off", 2, False),
    ]  # fmt: skip
    assert str(facts.turns[0].carriers[0]) == "UCX: rc_mlx5 on mlx5_0:1"
    assert average_rate(facts.rates("gdr-on")) == pytest.approx(816, rel=0.01)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text.replace("== turn 2 of 2: tcp", "== turn 2 of 2: gdr-on"), "was not planned"),
        (lambda text: text.rpartition("== turn 2")[0], "less than of the logs"),
        (lambda text: text.replace("== turn 2 of 2: rdma", "== turn 1 of 2: rdma"), "two jobs"),
        (lambda text: text.replace('"world_size": 8', '"world_size": 4', 1), "world_size"),
        (lambda text: "", "no job's output"),
    ],
    ids=["another way", "cut off", "twice", "other ranks", "nothing"],
)
def test_turns_that_do_not_add_up_are_refused(spoil: Any, words: str) -> None:
    m = turns(planned())["vgg16-b128-fp16.rdma"]
    doc = document(m)
    with pytest.raises(ParseError, match=words):
        read(m, {**doc, "stdout": spoil(doc["stdout"])})


# --- the judge


def test_rdma_must_be_faster_than_tcp_with_vgg16() -> None:
    found = verdict("tn.rdma")
    by_network = {j.subject.partition("VGG-16")[1] or "other": j for j in found.judgements}
    assert found.verdict == "pass", found.reason
    assert by_network["VGG-16"].value == pytest.approx(1 / 0.6, rel=0.01)
    assert by_network["other"].reason_code == "reported"
    slow = verdict("tn.rdma", rates={"rdma": 800.0, "tcp": 790.0})
    assert (slow.verdict, slow.reason_code) == ("fail", "below-floor")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (lambda m, way: BTL, "rdma: Open MPI: tcp: not the fabric's RDMA"),
        (lambda m, way: UCX, "tcp: UCX: rc_mlx5 on mlx5_0:1: TCP was asked for"),
        (lambda m, way: "", "the log does not tell"),
    ],
    ids=["fell back", "no tcp", "silent"],
)
def test_transports_that_the_log_does_not_prove_are_not_compared(said: Any, words: str) -> None:
    found = verdict("tn.rdma", said=said)
    assert found.verdict == "not-measured"
    assert words in found.reason


def test_gpudirect_counts_where_the_log_shows_it() -> None:
    assert verdict("tn.gdr").judgements[0].value == pytest.approx(1.02, rel=0.01)
    never = verdict("tn.gdr", said=lambda m, way: UCX + NCCL.format(far=4, gdr="") if "rdma" not in way else UCX)
    assert never.verdict == "not-applicable", "it withholds no acceptance: NCCL chose so"
    assert "NCCL took no GPUDirect RDMA" in never.judgements[0].reason
    assert "does not tell" in verdict("tn.gdr", said=lambda m, way: UCX).reason
    always = verdict("tn.gdr", said=lambda m, way: UCX + NCCL.format(far=4, gdr="/GDRDMA"))
    assert "took GPUDirect RDMA all the same" in always.reason


def test_files_must_feed_the_gpus() -> None:
    found = verdict("tn.cpu")
    assert found.verdict == "pass", found.reason
    assert "256 JPEG pictures of its own" in str(found.judgements[0].text)
    assert "(5%) for images" in str(found.judgements[0].text)
    starved = verdict("tn.cpu", rates={"synthetic": 800.0, "real": 500.0})
    assert (starved.verdict, starved.reason_code) == ("fail", "below-floor")


def test_files_of_a_network_disk_are_told_where_the_rate_is() -> None:
    far = "50000 pictures of /data/imagenet (folders) on nfs4 of head:/data, over the network"
    found = verdict("tn.cpu", changes={"real": {"source": far}})
    assert far in str(found.judgements[0].text)


def test_larger_worlds_are_held_against_one_rank_of_the_same_turns() -> None:
    found = verdict("tn.turns")
    assert {j.about.op.partition(",")[0]: round(j.value or 0, 2) for j in found.judgements} == {
        "1x4 beside 1x1": 0.96, "2x4 beside 1x1": 0.96,
    }  # fmt: skip
    assert found.verdict == "not-applicable", "reported"
    assert "/ 8 x 1x1 800 = " in str(found.judgements[1].text)


def test_torchrun_stands_beside_mpirun_on_all_nodes() -> None:
    (one,) = verdict("tn.twin").judgements
    assert one.value == pytest.approx(1.02, rel=0.01)
    assert "torchrun beside mpirun" in one.subject
    lost = verdict("tn.twin", changes={"torchrun": {"cannot": "torch.distributed needs Gloo"}})
    assert lost.verdict == "not-measured"
    assert "torchrun: torch.distributed needs Gloo" in lost.reason


def test_scale_out_is_reported_beside_scale_up() -> None:
    found = verdict("tn.outup")
    assert found.verdict == "not-applicable"
    (one,) = found.judgements
    assert one.value == pytest.approx(0.97, rel=0.01)
    assert one.low is not None
    assert one.low < 0.97 < (one.high or 0)
    assert "2x2 beside 1x4, ResNet-50" in one.subject


def test_the_knee_is_the_least_number_of_processors_that_is_enough() -> None:
    assert knee_of({1: 100.0, 2: 190.0, 4: 390.0, 8: 400.0, 16: 401.0}) == 4
    found = verdict("tn.cores")
    assert [j.value for j in found.judgements] == [4.0, 4.0]
    few = verdict("tn.cores", changes={f"cores-{n}": {"cannot": f"too few processors: {n}"} for n in (2, 4, 8, 16)})
    assert few.verdict == "not-applicable"
    assert "one number of processors makes no curve: 1" in few.judgements[0].reason


def test_in_a_lab_nothing_of_it_is_judged() -> None:
    found = in_lab(None)
    assert criterion(found, "tn.cpu").reason_code == "virtual"
    assert criterion(found, "tn.outup").reason_code == "reported"


def test_nobody_passes_with_steps_that_are_missing() -> None:
    where = gpus()
    plan = planned(where)

    def train(m: Measurement) -> Result | None:
        if m.kind != KIND:
            return None
        made = healthy_turns(m)
        assert isinstance(made.facts, TurnsFacts)
        return made.model_copy(update={"facts": made.facts.model_copy(update={"turns": made.facts.turns[:1]})})

    results, info = real_results(plan, spoil=train), run_info(where, plan, fabric="roce100")
    found = judge(RunData(info, where, plan, load_fabric("roce100"), CRITERIA, results))
    for id_ in ("tn.rdma", "tn.cpu", "tn.outup", "tn.gdr", "tn.cores"):
        assert criterion(found, id_).verdict == "not-measured", id_
