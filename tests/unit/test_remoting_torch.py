"""Networks of the documents by PyTorch and the engine torch: what is planned, parsed, judged and shown. The document is
a lab's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.load_documents import Recorded, Report, of_job, with_engine
from tests.support.remote_move_documents import move_result
from tests.support.remote_neighbours_documents import beside_result
from tests.support.site import LAB, criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import plan_torch, remoting_isolate_probe, remoting_train_probe
from validation.measures.remoting.counts import subject_of
from validation.measures.remoting.facts import SAME_BITS, TITLES
from validation.measures.remoting.neighbours import NeighbourFacts
from validation.model import Judgement, Measurement, Result, Topology
from validation.probes import remoting, remoting_program
from validation.probes.tool import Ran

RECORDED = Recorded("torch-load-train.json")
PARAMS, document = RECORDED.params, RECORDED.document


def with_torch(topology: Topology) -> Topology:
    return with_engine(topology, "torch")


def real(*who: Any) -> None:
    """As on GPUs that are not emulated."""
    who[3]["emulated"] = False


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
    monkeypatch.setattr(remoting_program, "python", lambda *_: "/usr/bin/python3")
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
    assert parts == [(server, whole) for server in ("gpu1", "gpu2") for whole in plan_torch.WHOLES]
    assert [m.params["server"] for m in mine if m.kind == "remoting-isolate"] == ["gpu1", "gpu2"]
    shared = [m for m in plan_of(with_torch(LAB), ("remoting",)).measurements if m.id.startswith("remoting-shares")]
    cut = [(m.params["server"], m.params["parts"]) for m in shared if "load" in m.params]
    assert cut == parts, "each server holds its own parts"


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
    monkeypatch.setattr(remoting_program, "python", lambda *_: "/usr/bin/python3")
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
    monkeypatch.setattr(remoting_program, "python", lambda *_: "/usr/bin/python3")
    words = remoting_program.for_others(["--network", "alexnet"])
    assert words[:2] == ["/usr/bin/python3", "-c"]
    assert "-I" not in words, "the engine's plug-in comes by PYTHONPATH"
    assert not any(str(remoting_program.PROGRAM_FOLDER) in word for word in words[3:])
    assert words[-2:] == ["--network", "alexnet"]
