"""Networks of the documents by PyTorch and the engine torch: what is planned, parsed, judged and shown. The document is
a lab's."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.remote_move_documents import move_result
from tests.support.remote_neighbours_documents import beside_result
from tests.support.site import LAB, criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import plan_torch, remoting_isolate_probe, remoting_train_probe
from validation.measures.remoting.counts import subject_of
from validation.measures.remoting.facts import SAME_BITS, TITLES
from validation.measures.remoting.neighbours import NeighbourFacts
from validation.measures.remoting.train import HEADING, RemoteTrainFacts
from validation.model import Judgement, Measurement, Result, Topology
from validation.probes import remoting, remoting_program
from validation.probes.tool import Ran

RECORD = json.loads((Path(__file__).parents[1] / "data/torch-load-train.json").read_text())
PARAMS: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in RECORD["params"].items()}
Report = dict[str, Any]


def with_torch(topology: Topology) -> Topology:
    """The same site, whose inventory gives it the engine torch."""
    nodes = tuple(node.model_copy(update={"torch_engine": True}) for node in topology.nodes)
    return topology.model_copy(update={"nodes": nodes})


def document(change: Callable[[int, str, int, Report], object] = lambda *_: None, **facts: Any) -> Any:
    """The lab's, with some job's report changed."""
    made = copy.deepcopy(RECORD["document"])
    words = HEADING.split(made["stdout"])
    lines = []
    for turn, of, way, batch, text in zip(*(words[at::5] for at in range(1, 6)), strict=True):
        report = json.loads(text)
        change(int(turn), way, int(batch), report)
        lines.append(f"== turn {turn} of {of}: {way} {batch}\n{json.dumps(report)}\n")
    return {**made, "stdout": "".join(lines), "facts": {**made["facts"], **facts}}


def of_job(turn: int, way: str, batch: int, **changes: Any) -> Callable[[int, str, int, Report], object]:
    return lambda *who: who[3].update(changes) if who[:3] == (turn, way, batch) else None


def real(*who: Any) -> None:
    """As on GPUs that are not emulated."""
    who[3]["emulated"] = False


def test_a_lab_s_document_says_network_engine_and_that_both_ways_have_the_same_bits() -> None:
    samples, facts = parse("remoting-train", document(), PARAMS)
    assert isinstance(facts, RemoteTrainFacts)
    assert (facts.engine, facts.network, facts.side, facts.thin) == ("torch", "alexnet", 63, 8)
    assert facts.title == "AlexNet (images of 63 x 63, 1/8 of the channels)"
    assert (samples[0].metric, samples[0].value) == ("differing_runs", 0)
    assert {run.host for run in facts.of("native", 4)} == {"gpu1"}
    assert {run.host for run in facts.of("remote", 4)} == {"client1"}
    assert len(facts.rates("remote", 16)) == 2 * (int(PARAMS["steps"]) - 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": "vgg16"}, "network is not that of the first job"),
        ({"servers": []}, "not reached through an engine"),
        ({"devices": [{"name": "other", "uuid": "GPU-9"}]}, "another GPU"),
        ({"tool": "elastic-ai-train"}, "no training by torch_load"),
        ({"code_sha256": "f" * 64}, "code_sha256 is not that of the first job"),
        ({"images_per_s": 1.0}, "do not follow from its steps"),
        ({"thin": 1, "hidden": 64}, "hidden is not that of the first job"),
    ],
)
def test_what_is_no_such_job_is_refused(changes: Report, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-train", document(of_job(2, "remote", 16, **changes)), PARAMS)


def changed_last_loss(by: float) -> Callable[[int, str, int, Report], object]:
    def change(*who: Any) -> None:
        if who[:3] == (2, "remote", 16):
            who[3]["losses"][-1] *= 1 + by

    return change


@pytest.mark.parametrize(("by", "differ"), [(0.0, 0), (1e-7, 1)])
def test_one_bit_of_a_loss_is_found_in_a_rehearsal(by: float, differ: int) -> None:
    samples, _ = parse("remoting-train", document(changed_last_loss(by)), PARAMS)
    assert samples[0].value == differ


@pytest.mark.parametrize(
    ("network", "by", "differ"), [("alexnet", 1e-7, 1), ("resnet50", 1e-7, 0), ("resnet50", 0.02, 1)]
)
def test_on_a_gpu_losses_may_differ_a_little_where_the_engine_normalises_by_other_kernels(
    network: str, by: float, differ: int
) -> None:
    def change(*who: Any) -> None:
        real(*who)
        who[3]["network"] = network
        changed_last_loss(by)(*who)

    params = {**PARAMS, "load": ("--network", network, *PARAMS["load"][2:])}
    samples, _ = parse("remoting-train", document(change, emulated=False), params)
    assert samples[0].value == differ


def test_without_the_engine_nothing_of_it_is_planned() -> None:
    assert not [m for m in plan_of(LAB, ("remoting",)).measurements if "load" in m.params]
    assert not [m for m in plan_of(hardware(), ("remoting",)).measurements if "load" in m.params]


def test_a_rehearsal_has_all_networks_small_on_its_first_server_and_one_on_the_others() -> None:
    mine = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if m.params.get("load")]
    trained = [m for m in mine if m.kind == "remoting-train"]
    names = [(m.params["server"], remoting_program.network_of([str(w) for w in m.params["load"]])) for m in trained]  # type: ignore[union-attr]
    assert names == [*(("gpu1", name) for name in plan_torch.VIRTUAL), ("gpu2", "resnet50")]
    assert all("rm.model" not in m.criteria and "rm.same" in m.criteria for m in trained)
    assert {m.params["server"] for m in mine if m.kind == "remoting-infer"} == {"gpu1", "gpu2"}


def test_gpus_train_as_published() -> None:
    site = with_torch(hardware(("head", "client1", "gpu1", "gpu2")))
    trained = [
        m for m in plan_of(site, ("remoting",)).measurements if m.kind == "remoting-train" and "load" in m.params
    ]
    assert len(trained) == 2 * len(plan_torch.REAL)
    for m in trained:
        assert m.params["load"][5] == "1", "all channels"  # type: ignore[index]
        assert all(int(batch) >= 32 for batch in m.params["batches"]), "which are judged"  # type: ignore[union-attr]


def test_the_judgements_name_network_and_batch_and_judge_no_rate_of_processors() -> None:
    site = with_torch(LAB)
    plan = plan_of(site, ("preflight", "remoting"))
    found: list[Result] = []
    for m in plan.measurements:
        if m.kind == "remoting-train" and m.params.get("load", ("", ""))[1] == "alexnet":  # type: ignore[index]
            samples, facts = parse(m.kind, document(), m.params)
            found.append(result(m, samples, facts=facts))
    verdict = verdict_of(site, plan, found)
    mine = [j for j in criterion(verdict, "rm.ratio").judgements if j.about.op.startswith("AlexNet by PyTorch, batch")]
    assert [j.about.op for j in mine] == ["AlexNet by PyTorch, batch 4", "AlexNet by PyTorch, batch 16"]
    assert {j.reason_code for j in mine} == {"virtual"}
    same = [j for j in criterion(verdict, "rm.same").judgements if j.about.op == "AlexNet by PyTorch"]
    assert [j.verdict for j in same] == ["pass"]


# --- the probe's own steps, and the program ---------------------------------------------------------------------


def test_all_batches_of_a_turn_are_one_process_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run_tool(command: list[str], *_: object) -> Ran:
        ran.append(command)
        if "ELASTIC_AI_GPUS" in command[-1]:
            return Ran(command, 0, '[{"uuid": "GPU-7"}]', "")
        return Ran(command, 0, '{"ready": true}\n{"batch": 4}\nwords\n{"batch": 16}\n', "")

    monkeypatch.setattr(remoting, "ask", lambda *_: {"lease": 5, "gpus": [{"node": "gpu1", "emulated": True}]})
    monkeypatch.setattr(remoting, "release", lambda _lease: None)
    monkeypatch.setattr(remoting_train_probe, "run_tool", run_tool)
    monkeypatch.setattr(remoting_program, "python", lambda: "/usr/bin/python3")
    load = ["--network", "alexnet", "--side", "63"]
    asked = remoting_train_probe.Asked("gpu1", ["4", "16"], 2, 9, 1, 1, 60.0, load)
    said = remoting_train_probe.train(asked, remoting_train_probe.COSTS).stdout
    assert said.count('== turn 1 of 2: native 4\n{"batch": 4}') == 1
    assert said.index("turn 2 of 2: remote 4") < said.index("turn 2 of 2: native 4"), "in turns"
    native, remote = ran[1], ran[2]
    assert native[native.index("env") + 1] == "OMP_NUM_THREADS=1", "as many threads as the engine has"
    assert native[native.index("--processor") + 1] == "GPU-7"
    assert remote[:6] == ["toolkit", "run", "--lease", "5", "--", "/usr/bin/python3"]
    assert not any(remoting_train_probe.COSTS in command for command in ran)


def test_the_program_comes_to_a_server_as_text_and_starts_there(tmp_path: Path) -> None:
    """With a stand-in for torch: that the texts import each other, and nothing else of ours, is what can break."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    words = remoting_program.there(["--network", "alexnet"], ["GPU-7"], emulated=True)
    texts = words[words.index("-c") + 2 :]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{texts[0]}", *texts[1:]],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": ""}, cwd="/",
    )  # fmt: skip
    assert run.stderr.strip() == "torch was imported"
    assert max(map(len, words)) < 1 << 17, "what the kernel takes as one word"


def test_networks_have_names_in_reports_and_those_that_normalise_are_known() -> None:
    text = (remoting.__file__ or "").replace("remoting.py", "torch_networks.py")
    source = Path(text).read_text()
    for name, title in TITLES.items():
        line = next(line for line in source.splitlines() if line.strip().startswith(f'"{name}": Sizes('))
        assert f'"{title}"' in line
        assert line.endswith("False),") == (name in SAME_BITS)


def test_parts_and_attempts_are_made_by_pytorch_programs_too() -> None:
    mine = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if m.params.get("engine") == "torch"]
    parts = [(m.params["server"], m.params["parts"]) for m in mine if m.kind == "remoting-fraction"]
    assert parts == [*(("gpu1", whole) for whole in plan_torch.WHOLES), ("gpu2", plan_torch.WHOLES[0])]
    assert [m.params["server"] for m in mine if m.kind == "remoting-isolate"] == ["gpu1", "gpu2"]
    shared = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if m.id.startswith("remoting-shares")]
    assert {m.params["parts"] for m in shared if "load" in m.params} == set(plan_torch.WHOLES)


def test_rows_of_a_criterion_have_names_of_their_own_whichever_program_measured() -> None:
    for id_ in ("rm.isolate", "rm.memory", "rm.fraction", "rm.same"):
        mine = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if id_ in m.criteria]
        names = [str(subject_of(m)) for m in mine]
        assert len(set(names)) == len(names) > 4 - (id_ == "rm.isolate"), id_
        assert any("by PyTorch" in name for name in names)


def test_one_training_by_pytorch_is_in_layouts_and_over_more_and_more_servers() -> None:
    mine = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if m.params.get("load")]
    assert {m.id for m in mine if m.kind in ("remoting-scale", "remoting-layout")} == {
        "remoting-scale.client1.resnet50",
        "remoting-layout.gpu1+gpu2.resnet50",
    }


def test_an_attempt_by_pytorch_is_refused_for_what_it_does_and_not_for_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine torch refuses programs that do not import PyTorch: such a refusal would say nothing of a stranger."""
    ran: list[list[str]] = []

    def run_tool(command: list[str], *_: object) -> Ran:
        ran.append(command)
        return Ran(command, 2, "", "not yours")

    monkeypatch.setattr(remoting_isolate_probe, "run_tool", run_tool)
    monkeypatch.setattr(remoting_program, "python", lambda: "/usr/bin/python3")
    tenant = remoting_isolate_probe.Tenant(7, remoting_isolate_probe.Asked("gpu1", "", "torch"))
    tenant.stranger()
    assert ran[0][-2:] == [str(remoting_program.PROGRAM_FOLDER / "torch_attempts.py"), "device"]
    assert tenant.tried[0]["breach"] is False
    tenant.run("take", "1.1")
    assert ran[1][:2] == ["toolkit", "run"]
    assert "--no-kernels" not in ran[1]


# --- beside a neighbour, and a GPU that changes hands ------------------------------------------------------------


def planned(kind: str) -> list[Measurement]:
    plan = plan_of(with_torch(LAB), ("remoting",))
    return [m for m in plan.measurements if m.kind == kind and m.params.get("load")]


def judged(id_: str, kind: str, made: Callable[..., Result], **how: Any) -> list[Judgement]:
    site = with_torch(LAB)
    plan = plan_of(site, ("preflight", "remoting"))
    found = [made(m, **how) for m in plan.measurements if m.kind == kind]
    return list(criterion(verdict_of(site, plan, found), id_).judgements)


def test_a_pytorch_tenant_is_measured_beside_noise_alone_for_a_failing_kernel_is_the_first_engine_s() -> None:
    mine = planned("remoting-neighbours")
    assert [(m.params["server"], m.criteria) for m in mine] == [("gpu1", ("rm.noise",)), ("gpu2", ("rm.noise",))]
    facts = beside_result(mine[0], engine="torch").facts_of(NeighbourFacts)
    assert facts is not None
    assert {run.beside for run in facts.runs} == {"alone", "noise"}
    assert (facts.ends, facts.network, facts.engine) == ((), "resnet50", "torch")


def test_noise_is_judged_by_each_engine_and_the_subject_says_which_program() -> None:
    found = judged("rm.noise", "remoting-neighbours", beside_result)
    assert [j.about.op for j in found] == ["", "ResNet-50 by PyTorch"] * 2
    assert {(j.verdict, j.reason_code) for j in found} == {("not-measured", "virtual")}

    def other(_turn: int, case: str, made: Report) -> None:
        if case == "noise" and made["tool"] == "torch_load":
            made["weights_sha256"] = "f" * 64

    found = judged("rm.noise", "remoting-neighbours", beside_result, change=other)
    assert [j.verdict for j in found] == ["not-measured", "fail"] * 2


def test_a_pytorch_program_gives_its_gpu_and_goes_on_elsewhere() -> None:
    (m,) = planned("remoting-move")
    assert (m.params["server"], m.params["elsewhere"], m.criteria) == ("gpu1", "gpu2", ("rm.move",))
    found = judged("rm.move", "remoting-move", move_result)
    assert [(j.about.op, j.verdict) for j in found] == [("", "pass"), ("ResNet-50 by PyTorch", "pass")]

    def other(name: str, made: Report) -> None:
        if name == "resumed" and made["tool"] == "torch_load":
            made["weights_sha256"] = "f" * 64

    assert [j.verdict for j in judged("rm.move", "remoting-move", move_result, change=other)] == ["pass", "fail"]
    with pytest.raises(ParseError, match="no training by torch_load"):
        move_result(m, change=lambda _name, made: made.update(tool="elastic-ai-train"))
    with pytest.raises(ParseError, match="network"):
        move_result(m, change=lambda name, made: made.update(network="vgg16") if name == "took" else None)


def test_a_program_for_others_comes_as_text_for_they_may_not_read_the_probe_s_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remoting_program, "python", lambda: "/usr/bin/python3")
    words = remoting_program.for_others(["--network", "alexnet"])
    assert words[:2] == ["/usr/bin/python3", "-c"]
    assert "-I" not in words, "the engine's plug-in comes by PYTHONPATH"
    assert not any(str(remoting_program.PROGRAM_FOLDER) in word for word in words[3:])
    assert words[-2:] == ["--network", "alexnet"]
