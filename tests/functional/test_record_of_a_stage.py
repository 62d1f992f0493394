"""What a node was provisioned with is written down by a stage that runs alone too, and by the whole site once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import ROOT

RECORD = "/etc/elastic-ai/provisioned.json"
BEFORE = {"release": "r", "results": {"slurm": {"state": "present", "versions": {"slurm": "1"}}}}
RESULT = {"state": "present", "versions": {"slurm": "2"}, "not_applicable": [], "reboot_required": [], "stand_ins": []}
STAGES = ("base", "fabric", "gpu", "containers", "remoting", "pool", "monitoring", "page", "jupyterhub")


#: Node -> whether preflight has published its result in this run, and the record that the node has.
NODES = {"alone": (False, BEFORE), "in_site": (True, BEFORE), "bare": (False, None)}
Written = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory and a stage whose role published RESULT."""
    folder = tmp_path_factory.mktemp("stage")
    hosts = {}
    for name, (preflight, before) in NODES.items():
        record = "" if before is None else json.dumps(before)
        answers = {"modules": {"node_state": {"contents": {RECORD: record}}}}
        (folder / f"{name}.json").write_text(json.dumps(answers))
        hosts[name] = {"canned_recording": str(folder / f"{name}.json"), "after_preflight": preflight}
    variables = {
        "ansible_connection": "canned", "canned_log": str(folder / "calls.jsonl"), "stack_data": {"release": "r"},
    }  # fmt: skip
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "hosts": hosts}}))
    set_fact, import_role = "ansible.builtin.set_fact", "ansible.builtin.import_role"
    end = {"name": str(ROOT / "roles/acceptance"), "tasks_from": "stage"}
    tasks = [
        {"name": "Preflight", set_fact: {"preflight_result": RESULT}, "tags": "always", "when": "after_preflight"},
        {"name": "Publish", set_fact: {"slurm_result": RESULT}, "tags": ["slurm"]},
        {"name": "End of the stage", import_role: end, "tags": ["slurm"]},
    ]
    play = [{"name": "Stage", "hosts": "all", "gather_facts": False, "tasks": tasks}]
    (folder / "stage.yml").write_text(yaml.safe_dump(play))
    return folder


def written(folder: Path, *options: str) -> Written:
    """Node -> the record that the run wrote."""
    log = folder / "calls.jsonl"
    log.unlink(missing_ok=True)
    done = subprocess.run(
        ["ansible-playbook", str(folder / "stage.yml"), "-i", str(folder / "hosts.yml"), *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    files = [(call["host"], call["args"]["files"]) for call in calls if call["module"].endswith("managed_files")]
    return {host: entry["content"] for host, (entry,) in files if entry["path"] == RECORD}


def test_a_stage_that_runs_alone_records_what_it_did_and_one_of_the_whole_site_does_not(folder: Path) -> None:
    records = written(folder)
    assert list(records) == ["alone"], "in the site its own stage does; without acceptance there is none"
    assert records["alone"]["results"]["slurm"]["versions"] == {"slurm": "2"}


@pytest.mark.parametrize("options", [("--tags", "slurm"), ("--skip-tags", "cuda")])
def test_a_part_of_the_site_records_what_it_did(folder: Path, options: tuple[str, ...]) -> None:
    assert sorted(written(folder, *options)) == ["alone", "in_site"]


@pytest.mark.parametrize("stage", STAGES)
def test_each_node_of_a_stage_ends_it_with_the_record_with_each_of_its_tags(stage: str) -> None:
    entries = yaml.safe_load((ROOT / f"playbooks/{stage}.yml").read_text())
    plays = [entry for entry in entries if "ansible.builtin.import_playbook" not in entry]  # those only observe
    roles = {task["ansible.builtin.import_role"]["name"] for play in plays for task in play["tasks"]}
    ends = [play["post_tasks"][-1] for play in plays if play.get("post_tasks")]
    assert all(end["ansible.builtin.import_role"] == {"name": "acceptance", "tasks_from": "stage"} for end in ends)
    assert {tag for end in ends for tag in end["tags"]} == roles
    assert plays[-1].get("post_tasks"), "the last play"


def test_every_stage_of_the_site_with_roles_is_among_them() -> None:
    site = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    names = [entry["ansible.builtin.import_playbook"].removesuffix(".yml") for entry in site]
    before = names[: names.index("acceptance")]
    with_results = [name for name in before if name not in ("preflight", "reboot_first", "reboot", "training_begin")]
    assert with_results == list(STAGES)
