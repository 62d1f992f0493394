"""`site.yml --check` on a node of somebody else's, and on ours under jobs: refused before anything is changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_check_mode_per_os import keys
from tests.support import one_reboot
from tests.support.node_modules import ROOT
from tests.support.one_reboot import Json, System, calls

pytestmark = pytest.mark.systems

XE9680 = System("ubuntu2404", "xe9680", one_reboot.make.RAILS[0])
ENTRY = {"known": False, "as_written": False, "default": False}
SLURM: Json = {
    "files": [{"path": "/etc/munge/munge.key", **ENTRY}, {"path": "/etc/slurm/slurm.conf", **ENTRY}],
    "slurm": {
        "confs": [{"path": "/etc/slurm/slurm.conf", "controllers": ["ctl01"], "cluster": "prod"}],
        "daemons": [{"name": "slurmd", "conf": "", "server": ""}],
    },
}
#: Modules that change nothing.
READING = {"node_state", "node_preflight", "setup", "gather_facts"}


def run(folder: Path, observed: Json, *options: str, **variables: Any) -> tuple[str, list[Json]]:
    """What a run said, and what it called."""
    recording = one_reboot.arrived(XE9680)
    seen = recording["modules"]["node_preflight"]
    seen |= {key: {**seen[key], **value} if key == "foreign" else value for key, value in observed.items()}
    hosts = one_reboot.inventory(XE9680, folder / "site", recording, keys(folder) | variables)
    one_reboot.check(folder, {"site": hosts}, *options)
    return " ".join((hosts.parent / "said").read_text(encoding="utf-8").split()), calls(hosts)


def test_a_node_of_another_slurm_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    said, called = run(tmp_path, {"foreign": SLURM, "jobs": ["17", "23"]})
    assert "failed=1" in said
    assert "of cluster prod under ctl01" in said
    assert "jobs 17, 23 of Slurm" in said
    assert "preflight_take_over: [munge]" in said
    assert {call["module"] for call in called} <= READING


def test_said_to_be_ours_it_passes_preflight(tmp_path: Path) -> None:
    ours = ["slurm", "munge", "jobs"]
    said, called = run(tmp_path, {"foreign": SLURM, "jobs": ["17"]}, "--tags", "preflight", preflight_take_over=ours)
    assert "failed=0" in said
    assert {call["module"] for call in called} <= READING, "preflight alone changes nothing"
    assert "Slurm taken over (preflight_take_over): /etc/slurm/slurm.conf of cluster prod" in said


def test_what_is_taken_over_is_recorded_before_anything_is_replaced(tmp_path: Path) -> None:
    ours = ["slurm", "munge", "jobs"]
    _, called = run(tmp_path, {"foreign": SLURM, "jobs": ["17"]}, "--tags", "dcgm", preflight_take_over=ours)
    changing = [call for call in called if call["module"] not in READING]
    (record,) = changing[0]["args"]["files"]
    assert record["path"] == "/etc/elastic-ai/taken_over.json"
    content = record["content"]
    written = json.loads(content) if isinstance(content, str) else content
    assert sorted(written) == ["jobs", "munge", "slurm"]
    assert "of cluster prod under ctl01" in written["slurm"]["found"]


def test_a_node_without_scheduler_keeps_its_slurm(tmp_path: Path) -> None:
    said, _ = run(tmp_path, {"foreign": SLURM}, "--tags", "preflight", slurm_pool={"scheduler": "none"})
    assert "failed=0" in said


RELEASE = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]
DRIVER = RELEASE["sets"]["ubuntu2404"]["nvidia_driver"]["version"]
VERSIONS = {"nvidia_driver": {"provider": "cuda", "driver": DRIVER, "fabric_manager": DRIVER}}
OURS: Json = {"jobs": ["4711"], "provisioned_release": "current", "provisioned_versions": VERSIONS}


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({}, ""),
        ({"stack_overrides": {"nvidia_driver": {"version": "580.200.01"}}}, f"NVIDIA driver {DRIVER} to 580.200.01"),
        ({"nvidia_driver_version": "590.48.01"}, f"NVIDIA driver {DRIVER} to 590.48.01"),
        ({"nvidia_driver_state": "absent"}, "nvidia_driver is left out"),
    ],
)
def test_versions_are_compared_under_the_same_name_of_the_release(
    tmp_path: Path, variables: Json, refused: str
) -> None:
    said, _ = run(tmp_path, copy.deepcopy(OURS), "--tags", "preflight", **variables)
    assert ("4711" in said) == bool(refused)
    assert refused in said


def test_the_same_versions_under_another_name_pass(tmp_path: Path) -> None:
    said, _ = run(tmp_path, {**OURS, "provisioned_release": "last-year"}, "--tags", "preflight")
    assert "failed=0" in said
