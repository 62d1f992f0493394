"""The suite remoting whole, on a lab that has every engine that a lab can have: nothing fails, nothing is left
unmeasured that could be measured there, and no chart of its section is empty.

Marked `rest`: TensorFlow and PyTorch are copied, and 70 measurements take their turns, half an hour.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import NODES, Lab, toolkit

from tests.support import torch_env
from tests.support.tensorflow_engine import real_python
from tests.support.torch_env import TorchEnvError
from toolkit.lab.frameworks import TENSORFLOW, TORCH
from validation.measures.remoting.section_figures import remoting_figures
from validation.report.documents import RunDocuments, read_run
from validation.report.summary import verdict_of

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("quiet")]
LONG_S = 5400.0
#: Why a criterion may be shown and not judged here: its figures are of processors, or it is reported everywhere.
SHOWN = ("virtual", "reported")


@pytest.fixture(scope="module")
def whole(pool: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, RunDocuments]:
    """Its exit code and its run."""
    try:
        torch = torch_env.python()
    except TorchEnvError as fault:
        pytest.skip(str(fault))
    words = ("--torch", torch, "--tensorflow", real_python())
    up = toolkit("lab", "up", "--name", pool.name, "--inventory", pool.inventory, *words, timeout_s=1800)
    assert up.returncode == 0, up.stderr
    done = pool.playbook(name="playbooks/remoting.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    runs = tmp_path_factory.mktemp("whole")
    asked = ("--fabric", "tcp10", "--suite", "remoting", "--format", "json", "--json")
    found = toolkit("validate", *asked, "-i", pool.inventory, "--runs-dir", runs, timeout_s=LONG_S)
    for node in NODES:
        pool.ssh(node, "rm -f /" + " /".join({*TORCH.commands, *TENSORFLOW.commands}))
    assert found.stdout.strip(), found.stderr
    assert json.loads(found.stdout)["sign_off"] == "REHEARSAL"
    (folder,) = Path(runs).iterdir()
    return found.returncode, read_run(folder)


def test_it_passes_and_every_planned_measurement_has_a_result(whole: tuple[int, RunDocuments]) -> None:
    code, documents = whole
    failed = {r.measurement: r.error for r in documents.latest.values() if r.status != "ok"}
    assert failed == {}
    verdict = verdict_of(documents)
    assert [c.id for c in verdict.criteria if c.verdict == "fail"] == []
    assert (code, verdict.outcome) == (0, "passed")
    assert documents.plan.left_out == ()


def test_every_criterion_is_judged_or_shown(whole: tuple[int, RunDocuments]) -> None:
    mine = [c for c in verdict_of(whole[1]).criteria if c.id.startswith("rm.")]
    assert mine
    for c in mine:
        assert c.judgements, c.id
        odd = [j for j in c.judgements if j.verdict != "pass" and j.reason_code not in SHOWN]
        assert odd == [], c.id
        # what is shown has its figure
        assert all(j.value is not None for j in c.judgements), c.id


def test_no_chart_is_empty_and_both_frameworks_are_in_the_table(whole: tuple[int, RunDocuments]) -> None:
    figures = remoting_figures(whole[1], verdict_of(whole[1]))
    assert [(f.id, f.empty) for f in figures if f.empty] == []
    table = next(f.table for f in figures if f.id == "both-ways")
    assert table is not None
    column = table.head.index("Framework")
    assert {"PyTorch", "TensorFlow"} <= {row[column] for row in table.rows}
