"""An image of a vendor, without mpirun and Horovod: torchrun launches what is trained, and result and report say so."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.figures_case import added
from tests.support.report_fixture import make_run
from tests.support.site import ALL, CRITERIA, criterion, lab, plan_of, real_results, result, run_info
from tests.support.tool_documents import doc
from tests.support.tool_texts import training as report_of
from tests.support.turns_documents import document, healthy_turns
from validation.judging.run_data import RunData
from validation.kinds import job_for, parse
from validation.measures.collectives import collectives_probe
from validation.measures.training import (
    tf_cnn_benchmarks_probe,
    training_long_probe,
    training_short_probe,
    training_turns_probe,
)
from validation.measures.training.facts import TrainingFacts, TurnsFacts
from validation.measures.training.jobs_figures import training
from validation.measures.training.turns_figures import turns_figures
from validation.model import Measurement, Result, VerdictDoc
from validation.probes.asked import make
from validation.probes.collectives_rank import launched
from validation.probes.train_parts import MARK
from validation.probes.train_world import launcher
from validation.report.documents import read_run
from validation.report.summary import verdict_of
from validation.rules.fabric import load_fabric
from validation.verdict.judge import judge

HOSTS = ["gpu1", "gpu1", "gpu2", "gpu2"]
PARAMS = {
    "ranks": 4, "ranks_per_node": 2, "warmup": 3, "steps": 20, "batch": 16, "model": "small", "precision": "fp32",
    "device": "cpu", "label": "inter", "transport": "tcp",
}  # fmt: skip
ALONE = {"launcher": "torchrun", "framework": "ddp", "horovod": ""}
TWIN = {"torchrun": {"launcher": "torchrun"}}
TORCHRUN = """\
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with open(here / "asked", "a") as note:
    note.write(json.dumps(sys.argv[1:]) + "\\n")
what = "parts" if "train_parts.py" in " ".join(sys.argv) else "job"
sys.stdout.write((here / what).read_text())
"""
REASON = "the training container has no mpirun"


class Container:
    """A root of programs that `enter` enters; what is not in it is not there. Its torchrun prints what is in a file."""

    def __init__(self, folder: Path, mpirun: str = "", parts: tuple[dict[str, str], ...] = ()) -> None:
        """`mpirun`: a script, where the image has one; `parts`: what the servers have."""
        self.folder, programs = folder, folder / "bin"
        programs.mkdir()
        for name in ("sh", "setpriv", "cat"):
            (programs / name).symlink_to(str(shutil.which(name)))
        (programs / "python3").symlink_to(sys.executable)
        if mpirun:
            (programs / "mpirun").write_text(mpirun)
            (programs / "mpirun").chmod(0o755)
        self.enter = folder / "enter"
        self.enter.write_text(f'#!/bin/sh\nPATH={programs}\nexport PATH\nexec "$@"\n')
        self.enter.chmod(0o755)
        (folder / "torchrun.py").write_text(TORCHRUN)
        servers = parts or tuple(
            {"host": name, "torch": "2.14.1", "horovod": "", "tensorflow": ""} for name in HOSTS[::2]
        )
        (folder / "parts").write_text("".join(MARK + json.dumps(one) + "\n" for one in servers))
        told = {**json.loads(report_of(PARAMS, HOSTS, 500.0)), **ALONE}
        (folder / "job").write_text(json.dumps(told) + "\n")

    def asked(self, kind: Any, **more: Any) -> Any:
        """What is asked of a probe in it."""
        given = {key: PARAMS[key] for key in ("ranks", "warmup", "steps", "batch", "model", "precision", "device")}
        given |= {"hosts": ["10.0.0.1:2", "10.0.0.2:2"], "networks": ["10.0.0.0/24"], "enter": str(self.enter)}
        given |= {"ends": ["fab0@10.0.0.1", "fab0@10.0.0.2"], "torchrun": str(self.folder / "torchrun.py")}
        return make(kind, {**given, **more})

    @property
    def launches(self) -> list[list[str]]:
        """The words of each launch by torchrun."""
        note = self.folder / "asked"
        return [json.loads(line) for line in note.read_text().splitlines()] if note.exists() else []


@pytest.fixture
def vendor(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_without_mpirun_torchrun_launches_the_job(vendor: Container) -> None:
    found = training_short_probe.probe(vendor.asked(training_short_probe.Asked))
    assert found["error"] is None
    looked, job = vendor.launches
    assert looked[1] == "10.0.0.1:1,10.0.0.2:1", "each server once says what it has"
    assert job[1] == "10.0.0.1:2,10.0.0.2:2"
    assert job[job.index("--framework") + 1] == "ddp"
    assert found["command"][5].endswith("/bin/python3"), "the first of the image, wherever it has torch"
    samples, facts = parse("training-short", found, PARAMS)
    assert isinstance(facts, TrainingFacts)
    assert len([s for s in samples if s.metric == "images_per_s"]) == 20
    assert (facts.launcher, facts.framework, facts.mpi) == ("torchrun", "ddp", "")


def test_with_mpirun_it_is_mpirun_as_printed_in_the_whitepaper(tmp_path: Path) -> None:
    said = '{"host": "gpu%s", "torch": "1.13", "horovod": "0.28.1", "tensorflow": ""}'
    lines = "\\n".join(MARK + said % n for n in (1, 2))
    script = f'#!/bin/sh\necho "$*" >> {tmp_path}/mpi\ncase "$*" in *train_parts*) printf \'{lines}\\n\';; esac\n'
    there = Container(tmp_path, mpirun=script)
    training_short_probe.probe(there.asked(training_short_probe.Asked))
    assert not there.launches
    assert "train_cnn.py" in (tmp_path / "mpi").read_text()


def test_one_rank_on_another_server_is_launched_there(vendor: Container) -> None:
    training_short_probe.probe(
        vendor.asked(training_short_probe.Asked, ranks=1, hosts=["10.0.0.2:1"], ends=["fab0@10.0.0.2"])
    )
    (job,) = vendor.launches
    assert job[:2] == ["-H", "10.0.0.2:1"]


def test_a_container_that_cannot_be_entered_has_not_lost_its_mpirun(vendor: Container) -> None:
    vendor.enter.write_text("#!/bin/sh\necho 'the training container does not run' >&2\nexit 125\n")
    found = training_short_probe.probe(vendor.asked(training_short_probe.Asked))
    assert found["returncode"] == 125
    assert not vendor.launches


def test_horovod_that_is_asked_for_is_refused(vendor: Container) -> None:
    found = training_short_probe.probe(vendor.asked(training_short_probe.Asked, framework="horovod"))
    assert found["error"] == f"Horovod is asked for, and {REASON} to launch it"
    assert not vendor.launches


def test_servers_with_another_torch_are_named_without_mpirun_too(tmp_path: Path) -> None:
    parts = tuple(
        {"host": name, "torch": release, "horovod": "", "tensorflow": ""}
        for name, release in (("gpu1", "2.14.1"), ("gpu2", "2.13.0"))
    )
    there = Container(tmp_path, parts=parts)
    found = training_short_probe.probe(there.asked(training_short_probe.Asked))
    assert "gpu1 has torch 2.14.1, gpu2 has torch 2.13.0" in str(found["error"])
    assert len(there.launches) == 1


def test_the_long_test_is_launched_by_torchrun_too(vendor: Container) -> None:
    args = vendor.asked(training_long_probe.Asked, data="tiny", checkpoints=str(vendor.folder), epochs=3)
    assert "cannot be used" in str(training_long_probe.probe(args)["error"]), "the report of another job"
    assert "train_long.py" in " ".join(vendor.launches[-1])


def other(there: Container, kind: Any, **given: Any) -> Any:
    """What another probe is asked, of what it shares with a training."""
    fields = kind.__dataclass_fields__
    base = {key: value for key, value in vars(there.asked(training_short_probe.Asked)).items() if key in fields}
    return make(kind, {**base, **given})


def test_what_mpirun_alone_can_launch_says_why_it_did_not(vendor: Container) -> None:
    (vendor.folder / "bin/test").symlink_to(str(shutil.which("test")))
    asked = other(vendor, tf_cnn_benchmarks_probe.Asked, program="/dev/null", model="resnet50")
    assert REASON in str(tf_cnn_benchmarks_probe.probe(asked)["error"])


def test_collectives_are_launched_by_torchrun_and_measured_by_torch(vendor: Container) -> None:
    asked = other(vendor, collectives_probe.Asked, sizes=[4, 8], ops=["all_reduce"], variables=["NCCL_ALGO=Ring"])
    made = collectives_probe.probe(asked)
    assert made["returncode"] == 0
    assert made["facts"] == {"tool": "torch", "nccl_tests": ""}
    (words,) = vendor.launches
    assert words[:5] == ["-H", "10.0.0.1:2,10.0.0.2:2", "--port", str(asked.meet_port), "-I"]
    given = {words[at + 1] for at, word in enumerate(words) if word == "--set"}
    assert {"NCCL_IB_DISABLE=1", "NCCL_ALGO=Ring"} <= given
    of_mpirun = collectives_probe.torch_command(asked)
    assert words[words.index("--device") :] == of_mpirun[of_mpirun.index("--device") :]


def test_a_rank_of_the_collectives_knows_its_place_by_either_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    for name in (*names, *(f"OMPI_COMM_WORLD_{part}" for part in ("RANK", "SIZE", "LOCAL_RANK"))):
        monkeypatch.delenv(name, raising=False)
    assert launched("LOCAL_RANK", "0") == "0"
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert [launched(name) for name in ("RANK", "SIZE", "LOCAL_RANK")] == ["3", "4", "1"]
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    assert launched("SIZE") == "8", "mpirun started it"


@pytest.mark.parametrize(
    ("variable", "name"), [("TORCHELASTIC_RUN_ID", "torchrun"), ("OMPI_COMM_WORLD_SIZE", "mpirun"), ("", "")]
)
def test_a_rank_says_who_launched_it(monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    for known in ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(known, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    assert launcher() == name


# --- the verdict and the report


def outcome(m: Measurement, alone: bool) -> Result | None:
    """Of each training: of an image with mpirun, or without."""
    if m.kind == "training-turns":
        ways = {str(way): ALONE for way in m.params["ways"]} if alone else TWIN  # type: ignore[union-attr]
        return healthy_turns(m, changes=ways)
    if m.kind != "training-short":
        return None
    hosts = [name for name in m.params["hosts"] for _ in range(int(str(m.params["ranks_per_node"])))]  # type: ignore[union-attr]
    told = {**json.loads(report_of(m.params, hosts, 500.0)), **(ALONE if alone else {"launcher": "mpirun"})}
    samples, facts = parse("training-short", doc("training-short", json.dumps(told)), m.params)
    return result(m, samples, facts=facts)


@pytest.mark.parametrize("alone", [True, False])
def test_mpirun_is_not_measured_and_torchrun_is(alone: bool) -> None:
    topology, plan = lab(), plan_of(lab(), ALL)
    results = real_results(plan, spoil=lambda m: outcome(m, alone))
    found = judge(RunData(run_info(topology, plan), topology, plan, load_fabric("tcp10"), CRITERIA, results))
    twin = criterion(found, "tn.twin")
    assert (twin.verdict, twin.reason_code) == (
        ("not-applicable", "not-applicable") if alone else ("not-applicable", "reported")
    )
    assert (f"2x1: {REASON}, so torchrun launched it" in twin.reason) is alone
    for id_ in ("tn.short", "tn.turns", "tn.outup"):
        assert any(j.value is not None for j in criterion(found, id_).judgements), id_


def with_suite_training(mixed: bool = False) -> VerdictDoc:
    """A run of suite training in an image without mpirun; `mixed`: mpirun launched a part of the jobs all the same."""
    topology, plan = lab(), plan_of(lab(), ("training",))

    def one(m: Measurement) -> Result | None:
        alone, other = outcome(m, True), outcome(m, False)
        if not mixed or alone is None or other is None or not isinstance(alone.facts, TurnsFacts):
            return alone
        assert isinstance(other.facts, TurnsFacts)
        half = len(other.facts.turns) // 2
        turns = (*other.facts.turns[:half], *alone.facts.turns[half:])
        return alone.model_copy(update={"facts": alone.facts.model_copy(update={"turns": turns})})

    results = real_results(plan, spoil=one)
    return judge(RunData(run_info(topology, plan), topology, plan, load_fabric("tcp10"), CRITERIA, results))


def test_a_site_with_such_an_image_can_be_accepted() -> None:
    assert with_suite_training().outcome == "passed"


def test_an_image_without_mpirun_for_a_part_of_the_jobs_leaves_the_run_incomplete() -> None:
    found = with_suite_training(mixed=True)
    twin = criterion(found, "tn.twin")
    assert (twin.verdict, twin.reason_code) == ("not-measured", "missing-metric")
    assert found.outcome == "incomplete"


@pytest.mark.parametrize("alone", [True, False])
def test_the_report_says_who_launched_the_jobs(tmp_path: Path, alone: bool) -> None:
    documents = read_run(make_run(tmp_path))
    plan = plan_of(lab(), ALL)
    mine = [m for m in plan.measurements if m.kind in ("training-short", "training-turns")]
    documents = added(documents, [(m, outcome(m, alone)) for m in mine])
    table = training(documents)
    assert table is not None
    assert {row.launched for row in table.rows if row.average} == {f"launched by torchrun: {REASON}" if alone else ""}
    shown = next(f for f in turns_figures(documents, verdict_of(documents)) if f.id == "worlds")
    assert shown.table is not None
    assert (f"by torchrun, for {REASON}" in shown.table.caption) is alone


def test_turns_are_launched_by_torchrun_too(vendor: Container) -> None:
    m = next(m for m in plan_of(lab(), ALL).measurements if m.id.endswith("turns.outup"))
    text = document(m, changes={way: ALONE for way in ("1x2", "2x1")})["stdout"]
    (vendor.folder / "job").write_text(text.split("\n")[1] + "\n")
    given = dict(job_for(m, lab()).probe.params)
    args = make(
        training_turns_probe.Asked,
        {**given, "enter": str(vendor.enter), "torchrun": str(vendor.folder / "torchrun.py")},
    )
    args.ways, args.turns = ["1x2"], 1
    made = training_turns_probe.probe(args)
    assert made["error"] is None
    facts = parse("training-turns", made, {**m.params, "ways": ("1x2",), "turns": 1})[1]
    assert isinstance(facts, TurnsFacts)
    assert facts.turns[0].launcher == "torchrun"
    assert vendor.launches[-1][0] == "-H"
    assert "," not in vendor.launches[-1][1], "one node"
