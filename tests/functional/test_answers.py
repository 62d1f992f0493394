"""What commands answer with --json, on constructed runs, inventories, pools and labs: one object, by its schema."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers, warm
from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, node_text, slurm_job
from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key
from toolkit import acceptance, answer_forms, asbuilt
from toolkit.cli import cli
from toolkit.commands import gpus as gpus_command
from toolkit.commands import gpus_queue, lease_static
from toolkit.commands import images as images_command
from toolkit.commands import lab as lab_command
from toolkit.commands import lease as lease_command
from toolkit.commands import pool as pool_command
from toolkit.joined.asked import Joined
from toolkit.joined.missing import Missing
from toolkit.lab.spec import make_spec
from toolkit.lease.before.offers import ImageThere, Offers, PythonThere
from toolkit.lease.jobs import slurm
from toolkit.lease.pool_file import PoolDescription, PoolServer
from toolkit.lease.queue.limits import GpuClass, Limits
from toolkit.lease.queue.outlook import Outlook
from toolkit.lease.queue.start import Start
from toolkit.lease.server import instance
from toolkit.lease.static_forms import StaticLease
from toolkit.node import join, leave
from toolkit.policy_check import Checked
from toolkit.pool_changes import Change, Difference, Held, Outside
from toolkit.serials import PartsChecked, Signed
from validation.analysis.part_changes import PartChange
from validation.measures.asbuilt.facts import AsBuiltFacts, CheckOutcome
from validation.signing.record import Record
from validation.verdict.addendum import Addendum

pytestmark = pytest.mark.computes

ROOT = Path(__file__).resolve().parents[2]
NEVER = 9
ELSEWHERE = {
    "deployment": "test_deploy_run.py",
    "verdict": "test_validate_cli.py",
    "validations": "test_campaign_validate.py",
    "inventory-init": "test_inventory_scan.py",
    "inventory-scan": "test_inventory_scan.py",
    "switch-check": "test_switch_command.py",
    "support": "test_support.py",
    "traces": "test_training_evidence.py",
    "trace": "test_training_evidence.py",
    "pool-page": "test_pool_page.py",
    "upgrade": "../unit/test_upgrade.py",
    "backup": "test_backup.py",
    "mirror-plan": "../unit/test_mirror_answers.py",
    "mirror": "../unit/test_mirror_answers.py",
    "rotate": "../unit/test_rotate.py",
    "status": "../unit/test_status.py",
    "points": "test_punch_walk.py",
    "evidence": "test_evidence_files.py",
    "sum": "test_sum_of_units.py",
    "sum-checked": "test_sum_of_units.py",
    "point": "test_punch_walk.py",
    "points-updated": "test_punch_walk.py",
    "incidents": "../unit/test_incidents.py",
    "restore": "test_backup.py",
    "engine": "../engine/test_engine_build.py",
    "engine-pack": "../engine/test_engine_pack.py",
}
"""Answers that need more than is constructed here -> the test that holds them against their schema."""


def answer(name: str, *words: object, codes: tuple[int, ...] = (0,), input_: str | None = None) -> dict[str, Any]:
    """The answer of `toolkit WORDS --json`."""
    with warm.asking_ansible():
        done = CliRunner().invoke(cli, [*map(str, words), "--json"], input=input_)
    assert done.exit_code in codes, done.output
    return answers.check(done.stdout, name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two accepted runs of a site, and two rehearsals, one of which fails; not to be changed."""
    base = tmp_path_factory.mktemp("answers") / "runs"
    for day in (1, 2):
        name = f"2026-11-2{day}T10-15-00Z-tcp10"
        make_run(base / name, virtual=False, waive=True, day=day, run=name)
    for number, more in enumerate(({}, {"slow": "gpu2", "lab_gbps": 10.0}), 3):
        name = f"2026-11-2{number}T10-15-00Z-tcp10"
        make_run(base / name, run=name, **more)  # type: ignore[arg-type]
    return base


@pytest.fixture
def mine(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs, tmp_path / "runs")


def test_what_can_be_looked_up() -> None:
    listed = {name: answer(name, name)[name] for name in ("fabrics", "profiles", "criteria", "claims")}
    assert all(len(rows) > 5 for rows in listed.values())
    for name in ("profiles", "criteria", "claims"):
        assert answer(name, name, "list")[name] == listed[name]
    assert answer("fabric", "fabrics", "show", "roce40")["bounds"]["tcp_bandwidth"]["floor"] > 0
    assert answer("profile", "profiles", "show", "elastic")["profile"]["without_measurement"] is not None
    for criterion in listed["criteria"][:3]:
        assert answer("criterion", "criteria", "show", criterion["id"])["criterion"] == criterion
    for claim in listed["claims"][:3]:
        assert answer("claim", "claims", "show", claim["id"])["claim"] == claim


def test_runs_are_listed_judged_compared_and_followed(mine: Path, tmp_path: Path) -> None:
    where = ("--runs-dir", mine)
    names = [row["run"] for row in answer("runs", "runs", *where)["runs"]]
    assert [name[:10] for name in names] == ["2026-11-24", "2026-11-23", "2026-11-22", "2026-11-21"]
    (tmp_path / "none").mkdir()
    assert answer("runs", "runs", "--runs-dir", tmp_path / "none")["runs"] == []
    failed, passed, later, earlier = names
    judged = answer("judged", "judge", failed, "--profile", "network", *where, codes=(0, 1, 3))
    assert judged["run"] == failed
    assert Path(judged["folder"]).is_dir()
    answers.check_document("judged.json", json.loads((Path(judged["folder"]) / "judged.json").read_text()))
    compared = answer("comparison", "compare", earlier, later, *where, codes=(0, 1))
    assert (compared["file"], compared["rehearsal"]) == (None, False)
    out = tmp_path / "compared.html"
    assert answer("comparison", "compare", earlier, later, "--format", "html", "--out", out, *where, codes=(0, 1))[
        "file"
    ] == str(out)
    assert out.is_file()
    trended = answer(
        "trend", "trend", earlier, later, "--format", "json", "--out", tmp_path / "t", *where, codes=(0, 1)
    )
    assert [run["run"] for run in trended["runs"]] == [earlier, later]
    answers.check_document("trend.json", json.loads((tmp_path / "t/trend.json").read_text()))
    made = answer("baseline", "baseline", earlier, later, *where)
    assert made["figures"] > 0
    assert "criteria" in made["text"]
    written = answer("baseline", "baseline", earlier, later, "--out", tmp_path / "b.yml", *where)
    assert (written["text"], (tmp_path / "b.yml").read_text()) == (None, made["text"])
    pages = ("--format", "html,json")
    reported = answer("report", "report", failed, *pages, *where)
    assert (reported["outcome"], set(reported["files"])) == ("failed", {"html", "json"})
    campaign = answer("campaign", "report", "--campaign", failed, passed, *pages, *where, codes=(0, 2))
    assert len(campaign["runs"]) == 2
    assert answer("report", "report", passed, "--format", "none", *where)["report"] is None


def test_documents_of_a_run_have_the_published_forms(runs: Path) -> None:
    for run in runs.iterdir():
        for file in ("run.json", "topology.json", "plan.json", "verdict.json"):
            answers.check_document(file, json.loads((run / file).read_text()))
        for line in (run / "results.jsonl").read_text().splitlines():
            answers.check_document("results.json", json.loads(line))


@NEEDS_SSH
def test_a_run_is_signed_packed_and_verified(mine: Path, tmp_path: Path) -> None:
    run, key = "2026-11-24T10-15-00Z-tcp10", make_key(tmp_path / "key")
    where = ("--runs-dir", mine)
    signed = answer("signature", "sign", run, "--key", key, "--as", "A. Example, Example AG", *where)
    assert (signed["name"], signed["sign_off"]) == ("A. Example", "REHEARSAL")
    packed = answer("bundle", "bundle", run, "-o", tmp_path / "b.zip", *where)
    assert len(packed["signatures"]) == 1
    found = answer("verification", "verify", tmp_path / "b.zip", codes=(0, 3))
    assert (found["intact"], found["signatures"][0]["company"]) == (True, "Example AG")
    (mine / run / "verdict.json").write_text("{}")
    assert not answer("verification", "verify", run, *where, codes=(1,))["intact"]


def test_plans_and_outlines() -> None:
    site = ("validate", "-i", ROOT / "inventories/xe9680", "--dry-run", "--suite", "preflight")
    plans = answer("plans", *site, "--fabric", "roce400")["plans"]
    assert [plan["fabric"] for plan in plans] == ["roce400"]
    two = answer("outlines", *site, "--summary", "--fabric", "roce400")["outlines"]
    assert [one["fabric"] for one in two] == ["roce400"]
    assert two[0]["predicted_s"] > 0


def test_nodes_that_a_job_fails_for(tmp_path: Path) -> None:
    words = ("narrow", "--out", tmp_path / "out", "--nodes", "n1,n2,n3,n4", "--json", "--", "false", "{nodes}")
    done = CliRunner().invoke(cli, [*map(str, words)])
    assert answers.check(done.stdout, "narrowed")["nobody_good"] is True


def test_a_site_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = (CheckOutcome(name="test_base.py::test_one", outcome="failed", words="is off"),)
    facts = AsBuiltFacts.model_construct(checks=outcomes)
    found = [asbuilt.Checked("gpu1", facts, "", ""), asbuilt.Checked("gpu2", None, "no answer", "")]
    change = PartChange(what="replaced", node="gpu1", kind="nic", place="4", serial="X", was_place="4", was_serial="Y")
    parts = PartsChecked(Signed(Record("r", "2026-11-27", ""), (), ""), 1, (change,))
    monkeypatch.setattr(acceptance, "run_async", lambda _: (found, parts))
    monkeypatch.setattr(acceptance, "with_launcher", lambda *_: None)
    document = answer("check", "check", "-i", ROOT / "inventories/xe9680", codes=(1,))
    nodes = document["nodes"]
    words = "gpu1 slot 4: network card serial X, was Y in the report signed on 2026-11-27"
    assert [one["words"] for one in document["parts"]["changes"]] == [words]
    assert [(node["node"], node["state"]) for node in nodes] == [("gpu1", "failed"), ("gpu2", "not-checked")]


def test_nodes_join_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    addendum = Addendum(
        verb="add", node="gpu3", peers=("gpu1",), site="lab", fabric="tcp10", accepted_run="r", run="s", accepted=False,
        accepted_sign_off="ACCEPTED", accepted_verdict_sha256="0" * 64, accepted_manifest_sha256=None,
        suites=("transport",), not_repeated=(), faults=("slower than accepted",),
    )  # fmt: skip
    monkeypatch.setattr(join, "Joining", lambda *_: SimpleNamespace(join=lambda: addendum, empty=lambda _: None))
    monkeypatch.setattr(leave, "remove", lambda *_: None)
    site = ("-i", ROOT / "inventories/xe9680")
    assert answer("node", "node", "add", "gpu3", *site, codes=(1,))["addendum"]["accepted"] is False
    assert answer("node", "node", "replace", "gpu3", *site, codes=(1,))["verb"] == "replace"
    assert answer("node", "node", "remove", "gpu3", *site)["addendum"] is None


def test_labs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = make_spec("lab", 7, 4, 1.0, "debian 12", False, "")
    monkeypatch.setattr(lab_command, "become_root", lambda: None)
    monkeypatch.setattr(lab_command.labs, "up", lambda *_, **__: spec)
    monkeypatch.setattr(lab_command.labs, "down", lambda name, _: name == "lab")
    monkeypatch.setattr(lab_command.labs, "load", lambda _: spec)
    monkeypatch.setattr(lab_command.labs, "running_as_asked", lambda *_: None)
    monkeypatch.setattr(lab_command.members, "add", lambda *_: spec)
    monkeypatch.setattr(lab_command.members, "remove", lambda *_: None)
    monkeypatch.setattr(lab_command.lab_faults, "plant", lambda *_: None)
    monkeypatch.setattr(lab_command.lab_faults, "clear", lambda *_: None)
    status = [
        lab_command.labs.NodeStatus(n.name, n.group, "10.77.7.10", "10.78.7.10", 1.0, True, True, None)
        for n in spec.nodes
    ]
    monkeypatch.setattr(lab_command.labs, "status", lambda _: status)
    made = answer("lab", "lab", "up")
    assert (made["over"], made["accel"], len(made["nodes"])) == (None, None, 4)
    assert answer("lab-node", "lab", "up", "--add", "gpu3")["node"] == "gpu3"
    assert answer("lab-status", "lab", "status")["nodes"][0]["fault"] is None
    assert answer("lab-needs", "lab", "needs")["packages"]
    assert answer("lab-down", "lab", "down", "--name", "none")["labs"] == [{"lab": "none", "was_there": False}]
    assert answer("lab-down", "lab", "down", "--node", "gpu2")["node"] == "gpu2"
    kinds = [fault["kind"] for fault in answer("faults", "lab", "fault", "list")["faults"]]
    assert answer("lab-fault", "lab", "fault", "set", "gpu2", kinds[0])["fault"] == kinds[0]
    assert answer("lab-fault", "lab", "fault", "clear", "gpu2")["fault"] is None


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A machine of the pool on which the caller's lease 41 runs."""
    found = FakeHost(folder=tmp_path)
    said = slurm_job(41, gres="shard:v100:70(IDX:2)", uid=os.getuid(), user=lease_command.manage.me())
    instance.start(found, jobs_of(said)[0], found.serve())
    found.slurm.said, found.slurm.files = [said], [json.dumps(found.endpoint(41))]
    for module in (lease_command, gpus_command):
        monkeypatch.setattr(module, "this_host", lambda: found)
        monkeypatch.setattr(module, "on_head", lambda *_: False)
    return found


def test_leases(host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = answer("lease", "lease", "show", "41")
    assert (shown["lease"], shown["reason"], shown["ended"]) == (41, None, None)
    assert answers.TIME.fullmatch(shown["until"])
    bare = {key: value for key, value in shown.items() if key != "schema"}
    assert answer("leases", "lease", "list")["leases"] == [bare]
    assert answer("lease-env", "lease", "env", "41", tmp_path / "new")["lease"] == 41
    monkeypatch.setattr(lease_command.manage, "extend", lambda *_: "")
    assert answer("lease", "lease", "extend", "41", "--time", "1h") == shown
    monkeypatch.setattr(lease_command.manage, "release", lambda *_: None)
    assert answer("released-leases", "lease", "release", "41")["leases"][0]["state"] == "released"
    submission = SimpleNamespace(request=SimpleNamespace(text="1 GPU"))
    monkeypatch.setattr(lease_command.ask, "against_pool", lambda *_: submission)
    monkeypatch.setattr(lease_command.ask, "submit", lambda *_: 41)
    assert answer("lease", "lease", "request", "--no-wait") == shown


def test_leases_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    row = StaticLease("s1", "1 x 1/2 GPU", "gpu1:0", "client1", 1_795_000_000.0)
    monkeypatch.setattr(lease_static, "listed", lambda *_: [row, replace(row, until=None)])
    granted = lease_static.Granted("gpu1-s1", "gpu1", "1 x 1/2 GPU", "c", "a", None, None)
    monkeypatch.setattr(lease_static, "request", lambda *_: granted)
    monkeypatch.setattr(lease_static, "release", lambda *_: "released")
    listed = answer("static-leases", "lease", "list", "--static", "gpu1")["leases"]
    assert [one["until"] for one in listed] == ["2026-11-18T11:06:40Z", None]
    words = ("lease", "request", "--static", "gpu1", "--client", "c", "--user", "a")
    assert answer("static-lease", *words)["until"] is None
    assert answer("released-leases", "lease", "release", "s1", "--static", "gpu1")["leases"][0]["lease"] == "s1"


def test_the_pool_and_its_calendar(host: FakeHost, tmp_path: Path) -> None:
    host.slurm.node_text = node_text()
    gpus = answer("gpus", "gpus")["gpus"]
    assert gpus
    assert {use["lease"] for gpu in gpus for use in gpu["uses"]} == {41}
    host.slurm.answers["scontrol -o show reservation"] = (
        "ReservationName=pool_practicals StartTime=4102444800 EndTime=4102448400 Nodes=gpu1 Accounts=teaching "
        "Flags=DAILY,MAGNETIC State=INACTIVE\n"
    )
    assert answer("calendar", "gpus", "--calendar")["days"] == 7


def test_the_queue_when_gpus_can_be_had_and_limits(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.slurm.node_text = node_text()
    host.slurm.said = [slurm_job(42, gres="", state="PENDING", end=None)]
    host.slurm.queue = [slurm.Pending(42, None, "Resources")]
    (waits,) = answer("gpus", "gpus")["waiting"]
    assert (waits["lease"], waits["expected"]) == (42, None)
    start = Start("1 GPU", Outlook(None), 1, 0.0)
    monkeypatch.setattr(gpus_queue, "start_of", lambda *_: start)
    assert answer("gpus-when", "gpus", "--when")["start"] is None
    one = Limits(
        "ml", True, Fraction(1, 7), Fraction(0), None, Fraction(3), 60, None, 0, 0, (), (GpuClass("v100", None),)
    )
    monkeypatch.setattr(gpus_queue, "enforced", lambda _: True)
    monkeypatch.setattr(gpus_queue, "limits", lambda *_: [one])
    assert answer("gpus-limits", "gpus", "--limits")["classes"][0]["together"] is None


def test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    python = PythonThere("3.11.2", ("torch",), torch="2.14.1")
    image = ImageThere(("training:latest",), "sha256:" + "a" * 64, 9_100_000_000, "", python)
    pool = PoolDescription({"gpu1": PoolServer(offers=Offers(images=(image,)))}, default_image="training")
    monkeypatch.setattr(images_command, "read_pool", lambda _: pool)
    monkeypatch.setattr(images_command, "on_head", lambda *_: False)
    (one,) = answer("images", "images")["images"]
    assert (one["default"], one["servers"], one["cuda"]) == (True, ["gpu1"], None)


def test_another_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(41, "alice", Fraction(1, 2), "v100", False)
    change = Change(("alice",), ("ml",), (), (Difference("classes", "all", "no GPU"),))
    checked = Checked(tmp_path, "head", (change,), (Outside(held, "is in no class of users"),), ("staff",))
    monkeypatch.setattr(pool_command, "check_file", lambda *_: checked)
    assert answer("pool-check", "pool", "check", tmp_path / "new.yml")["changes"][0]["after"] == []


def test_a_cluster_that_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = Missing(True, "it has no Prolog", "copy elastic-ai-prolog")
    found = Joined(Path("inventories/site"), "head", "prod", "22.05", (lacks,))
    monkeypatch.setattr(pool_command, "check_joined", lambda *_: found)
    assert answer("pool-joined", "pool", "check", codes=(1,))["missing"][0]["needed"] is True


def test_errors_are_no_answers() -> None:
    for words in (("fabrics", "show", "nowhere"), ("judge", "none"), ("claims", "show", "none")):
        done = CliRunner().invoke(cli, [*words, "--json"])
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert done.stderr.lower().startswith("error: ")


def test_every_answer_is_held_against_its_schema_somewhere() -> None:
    """Here, or by a test that names it; those that are met here are met only when the whole file runs."""
    for name, file in ELSEWHERE.items():
        text = (ROOT / "tests/functional" / file).read_text()
        assert f'"{name}"' in text, f"{file} does not hold the answer {name} against its schema"
    here = Path(__file__).read_text()
    assert {n for n in answer_forms.ANSWERS if n not in ELSEWHERE and not re.search(rf'answer\(\s*"{n}"', here)} == {
        "profiles", "criteria", "claims", "fabrics", "narrowed", "lab-drill",
    }  # fmt: skip
