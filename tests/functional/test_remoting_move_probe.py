"""The probe of a GPU that changes hands, against real engine servers on loopback and a pool that takes GPUs back."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_remoting_probes import folder, pool  # noqa: F401 - fixtures
from validation.kinds import parse
from validation.measures.remoting import remoting_move_probe
from validation.measures.remoting.move import MoveFacts
from validation.measures.remoting.remoting_move_probe import Unmade, seconds, way

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here, which builds the reference engine"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: programs are started for others"),
    pytest.mark.engines,
]

CONFIG = "AccountingStorageHost = head\nPreemptType             = preempt/qos\nPreemptExemptTime       = {exempt}\n"
QOS = ["normal||00:00:00", "urgent|patient,other|00:01:30", "patient||00:01:30"]
KNOWN: dict[str, Any] = {"server": "gpu1", "batch": 8, "inputs": 7, "hidden": 5, "pace_ms": 20, "steps": 12}
KNOWN |= {"safe_s": 300.0}


def says(name: str, text: str, place: Path) -> None:
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def classes(pool: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """Alice's class preempts bob's; here both are root, who alone has the stand-in's leases."""
    monkeypatch.setenv("STAND_IN_NODES", "gpu1 gpu2")
    monkeypatch.setenv("STAND_IN_QUEUES", "1")
    says("scontrol", f"cat <<'END'\n{CONFIG.format(exempt='00:00:00')}END", pool)
    rows = {"qos": "\n".join(QOS), "assoc": "root|\nroot|root\nurgent|\nurgent|alice\npatient|bob\npatient|ghost"}
    says("sacctmgr", "\n".join(f"case \"$*\" in *' {k} '*) echo '{v}';; esac" for k, v in rows.items()), pool)
    times = "l=json.load(open(sys.argv[1]))[sys.argv[2]]; print(l['started'], l['ended'], sep='|')"
    says("sacct", f'exec {sys.executable} -c "import json,sys; {times}" {pool}/leases.json "$3"', pool)
    (pool / "tmp").mkdir()
    monkeypatch.setattr(remoting_move_probe.tempfile, "tempdir", str(pool / "tmp"))
    root = pwd.getpwuid(0)
    monkeypatch.setattr(remoting_move_probe, "local", lambda name: name != "ghost")
    monkeypatch.setattr(remoting_move_probe.pwd, "getpwnam", lambda _name: root)
    return pool


def moved(**changes: Any) -> Any:
    return remoting_move_probe.probe(
        remoting_move_probe.Asked(**{**KNOWN, "elsewhere": "gpu2", "limit_s": 120.0, **changes})
    )


def test_a_gpu_changes_hands_under_a_program_that_goes_on_elsewhere(classes: Path) -> None:
    doc = moved()
    assert doc["error"] is None
    samples, facts = parse("remoting-move", doc, {**KNOWN, "elsewhere": "gpu2"})
    assert isinstance(facts, MoveFacts)
    it = facts.moved
    assert it is not None
    assert facts.wrong() == []
    assert (it.gave, it.took, it.grace_s, it.elsewhere, it.steps_lost) == ("patient", "urgent", 90.0, True, 0)
    assert 0 < (it.told_s or 0) <= (it.saved_s or 0) < it.gone_s < min(it.first_step_s, it.resumed_s)
    assert it.steps == it.steps_kept + 12
    assert it.checkpoint_bytes > 58 * 8
    assert {s.metric: s.value for s in samples}["wrong"] == 0
    assert not list((classes / "tmp").iterdir()), "what was kept goes with the probe"


def test_without_another_server_it_goes_on_afterwards(classes: Path) -> None:
    doc = moved(elsewhere="")
    assert doc["error"] is None
    _, facts = parse("remoting-move", doc, {**KNOWN, "elsewhere": ""})
    assert isinstance(facts, MoveFacts)
    it = facts.moved
    assert it is not None
    assert facts.wrong() == []
    assert (it.elsewhere, it.steps_lost) == (False, 0)
    leases = [json.loads((classes / "leases.json").read_text())[number] for number in ("2", "3")]
    assert [one["asked"] for one in leases] == [["gpu1"]] * 2
    assert leases[0]["ended"] <= leases[1]["started"], "it goes on when the other has ended"


def test_a_program_that_is_not_told_loses_steps_and_it_is_said(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_TELLS", "SIGKILL")
    monkeypatch.setattr(remoting_move_probe, "KEEP_EVERY", "10")
    doc = moved()
    assert doc["error"] is None
    _, facts = parse("remoting-move", doc, {**KNOWN, "elsewhere": "gpu2"})
    assert isinstance(facts, MoveFacts)
    assert facts.moved is not None
    assert facts.moved.steps_kept % 10 == 0
    assert facts.moved.steps_kept > 0
    (wrong,) = facts.wrong()
    assert wrong.startswith("the program of patient was not notified, or could not keep its work: ")
    assert "(exit status 137)" in wrong


def test_a_pool_without_such_classes_is_not_measured_and_says_why(classes: Path) -> None:
    says("scontrol", "echo 'PreemptType             = preempt/none'", classes)
    says("sacctmgr", "echo 'sacctmgr: error: no accounting'; exit 1", classes)
    doc = moved()
    assert doc["error"] is None
    samples, facts = parse("remoting-move", doc, {**KNOWN, "elsewhere": "gpu2"})
    assert isinstance(facts, MoveFacts)
    assert samples == []
    assert "no class of users that takes GPUs back" in facts.unmade
    says("scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller'; exit 1", classes)
    assert "scontrol: slurm_load_ctl_conf error: Unable to contact" in str(moved()["error"])


BOTH = {"urgent": ["alice"], "patient": ["bob"]}


def test_who_gives_to_whom_is_read_from_the_policy() -> None:
    found = way(CONFIG.format(exempt="00:05:00"), QOS, BOTH, 300.0)
    assert (found.gave, found.took) == (("patient", "bob"), ("urgent", "alice"))
    assert (found.grace_s, found.safe_s) == (90.0, 300.0)
    both = {"urgent": ["bob", "carol"], "patient": ["bob"]}
    assert way(CONFIG.format(exempt="00:00:00"), QOS, both, 0.0).took.name == "carol"


@pytest.mark.parametrize(
    ("config", "rows", "members", "words"),
    [
        (CONFIG.format(exempt="00:30:00"), QOS, BOTH, "safe for 1800 s, and no more than 300 s"),
        (CONFIG.format(exempt="1-00:00:00"), QOS, BOTH, "safe for 86400 s"),
        (CONFIG.replace("qos", "none"), QOS, BOTH, "no class of users that takes"),
        (CONFIG, QOS[:1], BOTH, "no class of users that takes"),
        (CONFIG, QOS, {"urgent": ["alice"]}, r"nobody of both classes .* \(urgent from patient\)"),
        (CONFIG, [row.replace("00:01:30", "00:00:00") for row in QOS], BOTH, "patient no time after their notice"),
    ],
)
def test_what_a_policy_lacks_is_said(config: str, rows: list[str], members: Any, words: str) -> None:
    with pytest.raises(Unmade, match=words):
        way(config, rows, members, 300.0)


def test_times_of_slurm() -> None:
    assert [seconds(text) for text in ("00:01:30", "2-01:00:05", "05:00", "NONE", "")] == [90, 176405, 300, 0, 0]
    assert seconds("UNLIMITED") == float("inf")
