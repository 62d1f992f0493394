"""The short training by TensorFlow: what is planned, that an image without it is told, and what the real program said.

The recorded reports are of train_tf.py and mpirun on one machine: docs/measurements/training-tensorflow.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.site import hardware, lab
from tests.unit.test_training_choice import V100, planned
from toolkit.cli import cli
from validation.judging.accepted import AcceptedRate, AcceptedRates
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.kinds.trained import config_of, words_of
from validation.measures.training import training_short_probe
from validation.measures.training.facts import TrainingFacts
from validation.model import Measurement, Plan
from validation.plan.suites import PlanError
from validation.probes import train_parts, train_tf
from validation.probes.asked import make
from validation.probes.train_networks import NETWORKS

DATA = Path(__file__).parents[1] / "data" / "training"
TF = {"framework": "tensorflow"}


def jobs(plan: Plan) -> list[Measurement]:
    return [m for m in plan.measurements if m.kind == "training-short"]


def test_the_same_jobs_are_planned_under_names_of_their_own() -> None:
    plan = planned(TF, lab())
    found = jobs(plan)
    assert [m.id for m in found] == [
        f"training-short.tensorflow-small-b16-fp32.{label}" for label in ("1", "intra", "inter")
    ]
    assert {m.params["framework"] for m in found} == {"tensorflow"}
    assert words_of(found[0]).endswith(", batch 16, fp32, TensorFlow")
    assert job_for(found[-1], lab()).probe.params["framework"] == "tensorflow"
    assert not [m for m in plan.measurements if m.kind == "training-turns"]
    why = [one.why for one in plan.left_out if "tn.twin" in one.criteria]
    assert why == ["training in turns: tensorflow was asked for, and torch alone trains in turns"]


def test_torch_by_name_is_what_is_planned_without_the_option() -> None:
    for topology in (lab(), hardware()):
        assert planned({"framework": "torch"}, topology).measurements == planned({}, topology).measurements
    assert not any("framework" in m.params for m in planned({}, lab()).measurements)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"framework": "tensorflaw"}, "unknown framework 'tensorflaw'; did you mean tensorflow"),
        ({**TF, "models": "alexnet"}, "alexnet is none of its networks; there are: inception3, resnet50"),
        ({**TF, "precisions": "fp16"}, "processors do not train in it"),
    ],
)
def test_what_tensorflow_does_not_train_is_said_before_anything_runs(asked: dict[str, str], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        planned(asked, lab())


def test_gpus_are_refused_and_the_way_that_has_them_is_named() -> None:
    with pytest.raises(PlanError, match=r"inventory declares GPUs.*--tf-cnn-benchmarks"):
        planned(TF, hardware(("head", "gpu1", "gpu2"), slots=4, bom=V100))


def test_the_option_is_of_a_new_run() -> None:
    ran = CliRunner().invoke(cli, ["validate", "--resume", "x", "--framework", "tensorflow"])
    assert ran.exit_code != 0
    assert "--framework" in ran.output


def test_a_rate_of_torch_is_none_of_tensorflow() -> None:
    ours, theirs = jobs(planned(TF, lab()))[0], jobs(planned({}, lab()))[0]
    assert config_of(ours)[:3] == config_of(theirs)[:3]
    assert config_of(ours) != config_of(theirs), "each is scaled against one rank of its own"
    rate = AcceptedRate(
        run="r", verdict_sha256="0" * 64, measurement=theirs.id, model="small", batch="16", precision="fp32", ranks=1,
        hosts=tuple(map(str, theirs.params["hosts"])), images_per_s=1000.0,  # type: ignore[arg-type]
    )  # fmt: skip
    assert AcceptedRates(rates=(rate,)).of(theirs) == rate
    assert AcceptedRates(rates=(rate,)).of(ours) is None


def asked(**changes: Any) -> training_short_probe.Asked:
    given = {
        "ranks": 2, "hosts": ["10.0.0.1:2"], "networks": ["10.0.0.0/24"], "warmup": 3, "steps": 20, "batch": 16, **TF
    }  # fmt: skip
    return make(training_short_probe.Asked, {**given, **changes})


def container(folder: Path, answer: str, mpirun: str = "/usr/bin/mpirun") -> str:
    """A container whose mpirun starts what a server says of itself, and only notes that a training began."""
    (folder / "said").write_text(answer + "\n")
    enter = folder / "enter"
    enter.write_text(
        f'#!/bin/sh\ncase "$*" in *train_parts.py*) cat {folder}/said;; *train_tf.py*) touch {folder}/began;;\n'
        f'*"command -v"*) printf "/usr/bin/python3\\n{mpirun}\\nlooked\\n";; esac\n'
    )
    enter.chmod(0o755)
    return str(enter)


def said(**parts: str) -> str:
    return train_parts.MARK + json.dumps({"host": "gpu1", **dict.fromkeys(train_parts.PARTS, ""), **parts})


def test_an_image_without_tensorflow_says_so_in_one_sentence(tmp_path: Path) -> None:
    enter = container(tmp_path, said(torch="1.13.1", horovod="0.28.1"))
    found = training_short_probe.probe(asked(enter=enter))
    assert str(found["error"]) == (
        "no TensorFlow in the training container of gpu1; a training image with it is made by horovod_with_tensorflow"
    )
    assert not (tmp_path / "began").exists()


def test_an_image_with_it_trains(tmp_path: Path) -> None:
    whole = said(torch="1.13.1", horovod="0.28.1", tensorflow="2.15.1", horovod_tensorflow="0.28.1")
    training_short_probe.probe(asked(enter=container(tmp_path, whole)))
    assert (tmp_path / "began").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": "real"}, "TensorFlow trains on synthetic images alone here"),
        ({"cores": 2}, "TensorFlow trains on synthetic images alone here"),
    ],
)
def test_what_the_program_cannot_is_said_before_it_starts(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = training_short_probe.probe(asked(enter=container(tmp_path, said()), **changes))
    assert found["error"] == words
    assert not (tmp_path / "began").exists()


def test_without_mpirun_nothing_launches_it(tmp_path: Path) -> None:
    enter = container(tmp_path, said(), mpirun="")
    assert training_short_probe.probe(asked(enter=enter))["error"] == (
        "TensorFlow is asked for, and the training container has no mpirun to launch it"
    )


def test_the_program_without_tensorflow_reports_that_alone() -> None:
    words = ["--batch", "16", "--time-limit-s", "60", "--warmup", "1", "--steps", "2"]
    command = [sys.executable, "-I", "-S", train_tf.__file__, *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    report = training_short_probe.report_of(ran.stdout)
    assert report["cannot"] == "no TensorFlow with Horovod is in this image: No module named 'tensorflow'"
    assert "was not trained: no TensorFlow with Horovod" in str(training_short_probe.wrong(asked(), report))


PARAMS = {
    "ranks": 2, "ranks_per_node": 2, "warmup": 3, "steps": 20, "batch": 16, "model": "small", "precision": "fp32",
    "device": "cpu", **TF,
}  # fmt: skip


def recorded() -> Any:
    return json.loads((DATA / "tensorflow.json").read_text())


def test_a_recorded_job_of_two_ranks_is_read_as_one_of_torch() -> None:
    document = recorded()
    assert document["error"] is None
    samples, facts = parse("training-short", document, PARAMS)
    assert isinstance(facts, TrainingFacts)
    assert (facts.framework, facts.tensorflow, facts.horovod, facts.torch) == ("tensorflow", "2.15.1", "0.28.1", "")
    assert (facts.parameters, facts.products, facts.launcher, facts.mpi) == (
        NETWORKS["small"].parameters, {"float32": 4}, "mpirun", "4.1.4",
    )  # fmt: skip
    counted = {name: [s.value for s in samples if s.metric == name] for name in ("images_per_s", "loss")}
    assert len(counted["images_per_s"]) == 20
    assert len(counted["loss"]) == 23
    assert counted["loss"][-1] < counted["loss"][0] / 5, "it learned"
    assert facts.allreduce_by == "waits"
    assert facts.allreduce_s is not None
    assert facts.compute_s is not None
    steps = [32 / rate for rate in counted["images_per_s"]]
    assert 0 < facts.allreduce_s + facts.compute_s < 1.05 * sum(steps) / len(steps)


def test_a_job_of_torch_is_none_of_tensorflow() -> None:
    document = json.loads((DATA / "vendor.json").read_text())
    asked = {**PARAMS, "ranks": 4}
    with pytest.raises(ParseError, match="framework: tensorflow planned, but the tool reports ddp"):
        parse("training-short", document, asked)
