"""Completion as a shell asks for it: the program in a process of its own, with COMP_WORDS as bash gives them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.unit.test_answer_forms import leaves
from toolkit import completion
from toolkit.cli import cli
from toolkit.commands.formats import NONE
from toolkit.report_request import FORMATS
from validation.plan.suites import SUITES
from validation.rules.fabric import fabric_names
from validation.rules.profile import profile_names
from validation.rules.reference import packaged
from validation.run.catalogue import load_criteria

ROOT = Path(__file__).resolve().parents[2]


def completed(cwd: Path, line: str, **environment: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    asked = {"_TOOLKIT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "toolkit"], cwd=cwd, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **asked, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return [one.partition(",")[2] for one in done.stdout.splitlines() if one]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, a folder that is none, an inventory, and a lab in a state folder."""
    desk = tmp_path_factory.mktemp("desk")
    for name in ("2026-11-21T10-15-00Z-tcp10", "2026-11-22T10-15-00Z-roce40"):
        (desk / "runs" / name).mkdir(parents=True)
        (desk / "runs" / name / "run.json").write_text("{}")
    (desk / "runs/notes").mkdir()
    (desk / "site").mkdir()
    (desk / "site/hosts.yml").write_text(
        "all:\n  children:\n    heads:\n      hosts:\n        head:\n          ansible_host: 10.0.0.1\n"
        "    gpu_servers:\n      hosts:\n        gpu1: {ansible_host: 10.0.0.2}\n        gpu2:\n"
        "          fabric_ports:\n            - interface: x\n      vars:\n        other: 1\n"
    )
    lab = desk / "state/labs/lab"
    lab.mkdir(parents=True)
    (lab / "spec.json").write_text(json.dumps({"index": 7, "nodes": [{"name": "head"}, {"name": "gpu1"}]}))
    return desk


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("toolkit val", ["validate"]),
        ("toolkit validate --fabric roce4", ["roce40", "roce400"]),
        ("toolkit validate --fabric tcp10,roce40", ["tcp10,roce40", "tcp10,roce400"]),
        ("toolkit validate --profile elas", ["elastic", "elastic-long", "elastic-quick"]),
        ("toolkit validate --suite tr", ["transport", "training"]),
        ("toolkit validate --format html,j", ["html,json", "html,junit"]),
        ("toolkit report ", ["2026-11-22T10-15-00Z-roce40", "2026-11-21T10-15-00Z-tcp10"]),
        ("toolkit compare 2026-11-21T10-15-00Z-tcp10 2026-11-22", ["2026-11-22T10-15-00Z-roce40"]),
        ("toolkit report --runs-dir none ", []),
        ("toolkit check -i site --limit gpu", ["gpu1", "gpu2"]),
        ("toolkit check -i site --limit gpu1,", ["gpu1,head", "gpu1,gpu2"]),
        ("toolkit node remove -i site h", ["head"]),
        ("toolkit lab ssh ", ["head", "gpu1"]),
        ("toolkit lab status --name ", ["lab"]),
        ("toolkit lab fault set gpu1 slow-l", ["slow-link"]),
        ("toolkit criteria show tr.tcpb", ["tr.tcpbw"]),
        ("toolkit claims show vmware.roc", ["vmware.roce"]),
    ],
)
def test_values_are_completed(desk: Path, line: str, found: list[str]) -> None:
    assert completed(desk, line, ELASTIC_AI_LAB_DIR=str(desk / "state")) == found


@pytest.mark.parametrize(
    "line",
    ["toolkit report runs/2026", "toolkit judge runs/", "toolkit validate --resume runs/2", "toolkit verify hand",
     "toolkit compare runs/a runs/b", "toolkit validate --profile ./our"],
)  # fmt: skip
def test_what_is_given_as_a_path_is_left_to_the_shell(desk: Path, line: str) -> None:
    words = line.split(" ")
    asked = {"_TOOLKIT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "toolkit"], cwd=desk, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **asked},
    )  # fmt: skip
    assert done.stdout.split() == [f"file,{words[-1]}"]


def test_leases_are_asked_of_slurm(desk: Path) -> None:
    squeue = desk / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\nprintf '41\\n42\\n'\n")
    squeue.chmod(0o755)
    path = f"{squeue.parent}:{os.environ['PATH']}"
    assert completed(desk, "toolkit lease show 4", PATH=path) == ["41", "42"]
    squeue.write_text("#!/bin/sh\nexec sleep 30\n")
    assert completed(desk, "toolkit run --lease 4", PATH=path) == [], "a controller that hangs hangs no shell"


def test_names_are_those_of_the_release() -> None:
    ctx = click.Context(cli)
    assert set(completion.SUITES) == set(SUITES)
    assert (*FORMATS, NONE) == completion.FORMATS
    assert set(completion._fabrics(ctx)) == set(fabric_names())
    assert set(completion._profiles(ctx)) == set(profile_names())
    assert set(completion._criteria(ctx)) == {c.id for c in load_criteria()}
    assert set(completion._claims(ctx)) == set(packaged().claims)
    assert set(completion._documents(ctx)) == set(packaged().documents)


def test_the_table_names_commands_and_parameters_that_exist() -> None:
    found = {(words, p.name) for words, command in leaves(cli) for p in command.params}
    anywhere = {name for _, name in found}
    for command, parameter in completion.TABLE:
        assert (command, parameter) in found if command else parameter in anywhere, (command, parameter)


def test_what_completes_values_imports_nothing_heavy() -> None:
    code = (
        "import toolkit.completion, sys; print([m for m in ('pydantic', 'rich', 'yaml', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
