"""TensorFlow as the second framework of rm.ratio: what is planned, started, parsed, judged and shown. The document is a
lab's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.figures_case import added
from tests.support.load_documents import Recorded, of_job, with_engine
from tests.support.report_fixture import make_run
from tests.support.site import LAB, criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting import plan_tensorflow
from validation.measures.remoting.facts import TITLES
from validation.measures.remoting.remoting_train_probe import commands
from validation.measures.remoting.training_figures import HEAD, training_figure
from validation.model import Measurement, Plan, Result
from validation.probes import remoting, remoting_program
from validation.report.documents import read_run

RECORDED = Recorded("tensorflow-load-train.json")
PARAMS, document = RECORDED.params, RECORDED.document
LOAD = ["--framework", "tensorflow", "--network", "alexnet"]
BOTH = with_engine(LAB, "torch", "tensorflow")


def planned(plan: Plan) -> list[Measurement]:
    return [m for m in plan.measurements if "tensorflow" in m.params.get("load", ())]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tool": "torch_load"}, "no training by tf_load"),
        ({"servers": []}, "not reached through an engine"),
        ({"network": "resnet50"}, "network is not that of the first job"),
    ],
)
def test_what_is_no_such_job_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-train", document(of_job(2, "remote", 16, **changes)), PARAMS)


@pytest.mark.parametrize(("emulated", "by", "differ"), [(True, 1e-7, 1), (False, 1e-3, 0), (False, 0.02, 1)])
def test_on_a_gpu_kernels_may_add_in_another_order_and_on_processors_every_bit_counts(
    emulated: bool, by: float, differ: int
) -> None:
    def change(*who: Any) -> None:
        who[3]["emulated"] = emulated
        if who[:3] == (2, "remote", 16):
            who[3]["losses"][-1] *= 1 + by

    samples, _ = parse("remoting-train", document(change, emulated=emulated), PARAMS)
    assert samples[0].value == differ


def test_a_rehearsal_has_both_networks_on_its_first_server_and_the_small_one_on_the_others() -> None:
    mine = planned(plan_of(BOTH, ("remoting",)))
    trained = [(m.params["server"], remoting_program.network_of(list(m.params["load"]))) for m in mine]  # type: ignore[arg-type]
    assert trained == [("gpu1", "alexnet"), ("gpu1", "resnet50"), ("gpu2", "alexnet")]
    assert all(m.criteria == ("rm.ratio", "rm.batch", "rm.same") for m in mine)


def test_gpus_train_as_published() -> None:
    mine = planned(plan_of(with_engine(hardware(("head", "client1", "gpu1", "gpu2")), "tensorflow"), ("remoting",)))
    assert len(mine) == 2 * len(plan_tensorflow.REAL)
    for m in mine:
        words = list(m.params["load"])  # type: ignore[arg-type]
        assert words[words.index("--thin") + 1] == "1", "all channels"
        assert all(int(batch) >= 32 for batch in m.params["batches"]), "which are judged"  # type: ignore[union-attr]


@pytest.mark.parametrize("frameworks", [(), ("torch",), ("torch", "tensorflow")])
def test_the_plan_says_which_framework_measures_nothing_and_why(frameworks: tuple[str, ...]) -> None:
    plan = plan_of(with_engine(LAB, *frameworks), ("remoting",))
    assert bool(planned(plan)) == ("tensorflow" in frameworks)
    said = [left.why for left in plan.left_out if left.why.startswith("remoting by")]
    titles = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
    assert said == [
        f"remoting by {title}: remoting_engine_{name}_artifact is not set for client1, gpu1, gpu2"
        for name, title in titles.items()
        if name not in frameworks
    ]


def test_an_engine_of_some_nodes_alone_measures_there_and_the_others_are_named() -> None:
    nodes = tuple(
        node.model_copy(update={"tensorflow_engine": node.name != "gpu1"}) for node in with_engine(LAB, "torch").nodes
    )
    plan = plan_of(LAB.model_copy(update={"nodes": nodes}), ("remoting",))
    assert {m.params["server"] for m in planned(plan)} == {"gpu2"}
    said = "remoting by TensorFlow: remoting_engine_tensorflow_artifact is not set for gpu1"
    assert said in [left.why for left in plan.left_out]


def measured(site: Any = BOTH) -> tuple[Plan, list[Result]]:
    plan = plan_of(site, ("preflight", "remoting"))
    found = []
    for m in planned(plan):
        if m.params == {**PARAMS, "server": m.params["server"]} and m.params["server"] == "gpu1":
            samples, facts = parse(m.kind, document(), m.params)
            found.append(result(m, samples, facts=facts))
    assert len(found) == 1
    return plan, found


def test_the_judgements_name_the_framework_and_judge_no_rate_of_processors() -> None:
    plan, found = measured()
    verdict = verdict_of(BOTH, plan, found)
    mine = [j for j in criterion(verdict, "rm.ratio").judgements if j.reason_code == "virtual"]
    assert [j.about.op for j in mine] == ["AlexNet by TensorFlow, batch 4", "AlexNet by TensorFlow, batch 16"]
    same = [j for j in criterion(verdict, "rm.same").judgements if j.about.op == "AlexNet by TensorFlow"]
    assert [j.verdict for j in same] == ["pass", "not-measured"], "of gpu1, and of gpu2, which has no result"


def test_the_report_has_the_framework_as_a_column_and_in_the_curve_s_name(tmp_path: Path) -> None:
    plan, found = measured()
    pairs = [(m, next((r for r in found if r.measurement == m.id), None)) for m in plan.measurements]
    figure = training_figure(added(read_run(make_run(tmp_path / "run")), pairs))
    assert figure.table is not None
    column = HEAD.index("Framework")
    assert {row[column] for row in figure.table.rows} == {"\u2013", "PyTorch", "TensorFlow"}
    rows = [row for row in figure.table.rows if row[column] == "TensorFlow"]
    assert [row[HEAD.index("Batch")] for row in rows][:2] == ["4", "16"]
    assert any("not measured" in row for row in rows), "with its reason, of what has no result"
    assert "AlexNet by TensorFlow (gpu1)" in str(figure.svg)


# --- the program's command lines ---------------------------------------------------------------------------------


def test_each_framework_s_program_is_started_by_the_python_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a lab that has both, where `python` is PyTorch's."""
    for name, has in (("python", "torch"), ("python3", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\ncase "$2" in *"\'{has}\'"*) exit 0;; esac\nexit 1\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert remoting_program.here(["--network", "alexnet"])[0] == str(tmp_path / "python")
    with pytest.raises(remoting.Unmet, match="no Python of this client has TensorFlow"):
        remoting_program.here(LOAD)
    (tmp_path / "python3").write_text('#!/bin/sh\ncase "$2" in *"\'tensorflow\'"*) exit 0;; esac\nexit 1\n')
    here = remoting_program.here(LOAD)
    assert here == [str(tmp_path / "python3"), str(remoting_program.PROGRAM_FOLDER / "tf_load.py"), *LOAD]
    assert remoting_program.wish(LOAD) == ["--engine", "tensorflow"]


def test_natively_it_is_the_server_s_tensorflow_on_the_lease_s_gpu_or_its_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remoting_program, "python", lambda *_: "/usr/bin/python3")
    native = commands(7, ["GPU-7"], LOAD, True)["native"]
    assert native[native.index("env") + 1] == "CUDA_VISIBLE_DEVICES=-1"
    assert "/opt/elastic-ai/engine/beside/tensorflow" in native[native.index("-c") + 1]
    assert native[-2:] == ["--processor", "GPU-7"]
    native = commands(7, ["GPU-7"], LOAD)["native"]
    assert native[native.index("env") + 1] == "CUDA_VISIBLE_DEVICES=GPU-7"
    assert "--processor" not in native


def test_networks_have_the_names_of_reports() -> None:
    text = (remoting_program.PROGRAM_FOLDER / "tf_networks.py").read_text()
    for name in plan_tensorflow.REAL:
        assert f'"{name}": Sizes("{TITLES[name]}"' in text
