"""The plan of an upgrade by the real role preflight, over the recordings of a site's nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_recorded import RECORDED, REPO
from tests.support.lease_texts import answer, node_text
from tests.support.node_modules import load
from tests.support.warm import asking_ansible
from toolkit.errors import UsageFault
from toolkit.inventory import read_site
from toolkit.node import playbooks
from toolkit.node.head import Head
from toolkit.upgrade import planning
from toolkit.upgrade.plan import NodePlan, Plan
from toolkit.upgrade.state import Batch, State
from toolkit.upgrade.words import plan_lines

pytestmark = pytest.mark.systems
INVENTORY = REPO / "inventories/xe9680"
OLDER = "580.95.05"


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    with asking_ansible():
        yield


class Pool(Head):
    """Slurm with the four servers and no jobs."""

    def run(self, words: Sequence[str], timeout_s: float = 0.0) -> subprocess.CompletedProcess[bytes]:
        nodes = "\n\n".join(node_text(f"gpu{number}", state="IDLE") for number in range(1, 5)).encode()
        return subprocess.CompletedProcess(words, 0, answer([]) if words[0] == "squeue" else nodes, b"")


def record_of(release: str, system: str) -> dict[str, dict[str, str]]:
    """What node_preflight reads of a node that has just that set: by role its versions, in the names of the roles."""
    stack = yaml.safe_load((REPO / f"stacks/{release}.yml").read_text(encoding="utf-8"))["stack_data"]["sets"][system]
    found: dict[str, dict[str, str]] = {}
    for role, key, part, name in load("plugins/plugin_utils/upgrade.py").PARTS.values():
        if value := stack.get(part, {}).get(name):
            found.setdefault(role, {})[key] = value
    return found


def recorded(
    folder: Path, drivers: dict[str, str], release: str = "current", waits: Mapping[str, str] | None = None
) -> Path:
    """The recordings, with the record of what the release installs; of each node named another driver, or why it waits
    for a reboot."""
    waits = waits or {}
    for path in (RECORDED / "xe9680").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        record = record_of(release, "ubuntu2404")
        if driver := drivers.get(path.stem):
            record["nvidia_driver"] |= {"driver": driver, "fabric_manager": driver}
        data["modules"]["node_preflight"] |= {
            "provisioned_release": release,
            "provisioned_versions": record,
            "jobs": ["4711"],  # is no reason against a plan
        }
        if path.stem in waits:
            contents = {"/run/elastic-ai/reboot-required/ofed": f"{waits[path.stem]}\n"}
            data["modules"]["node_state"] |= {"contents": contents, "reboot_hints": ["linux-base"]}
        (folder / path.name).write_text(json.dumps(data), encoding="utf-8")
    return folder


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ANSIBLE_SSH_EXECUTABLE", "/nonexistent")  # a connection that is tried fails at once
    played, folder = playbooks.played, tmp_path / "recorded"
    folder.mkdir()
    recorded(folder, {"gpu2": OLDER})

    def over_recordings(playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> Any:
        return played(playbook, inventory, limit, [*arguments, "-e", f"preflight_recorded={folder}"])

    monkeypatch.setattr(playbooks, "played", over_recordings)
    return Pool(read_site(INVENTORY).topology)


def versions(plan: Plan) -> dict[str, list[tuple[str, str, str, bool]]]:
    return {one.node: [(c.part, c.before, c.after, c.reboot) for c in one.changes] for one in plan.nodes if one.changes}


def test_the_plan_is_what_preflight_compares_and_a_rollback_by_pins_is_the_way_back(head: Pool) -> None:
    """gpu2 has an older driver than the release: forth by the release, back by its pins in the release's set."""
    topology = read_site(INVENTORY).topology
    plan = planning.plan_upgrade(INVENTORY, topology, "current", "head,gpu2", head)
    wanted = plan.of("gpu2").changes[0].after
    assert versions(plan) == {
        "gpu2": [
            ("NVIDIA driver", OLDER, wanted, True),
            ("Fabric Manager", OLDER, wanted, False),
        ]
    }
    assert plan.batches == (("gpu2",),)
    assert plan.of("gpu2").pins == {
        "nvidia_driver": {"version": OLDER}, "fabric_manager": {"version": OLDER},
    }  # fmt: skip
    # As after that upgrade: gpu1 has the release's own versions, and gets its pins, and nobody else does.
    before = NodePlan(node="gpu1", release="current", to="current", changes=plan.of("gpu2").changes)
    done = Batch(nodes=("gpu1",), step="done")
    state = State(verb="upgrade", to="current", began="", nodes=(before,), batches=(done,))
    back = planning.plan_rollback(INVENTORY, topology, state, None, head)
    assert [one.node for one in back.nodes] == ["gpu1"]
    assert versions(back)["gpu1"][0] == ("NVIDIA driver", wanted, OLDER, True)
    assert [(c.part, c.after) for c in back.of("gpu1").changes][1] == ("Fabric Manager", OLDER)


def test_a_site_of_the_release_before_gets_each_version_of_current_and_its_own_ones_back(
    head: Pool, tmp_path: Path
) -> None:
    recorded(tmp_path / "recorded", {}, "previous")
    topology = read_site(INVENTORY).topology
    before, after = (
        yaml.safe_load((REPO / f"stacks/{name}.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]["ubuntu2404"]
        for name in ("previous", "current")
    )
    plan = planning.plan_upgrade(INVENTORY, topology, "current", "head,gpu1", head)
    parts = {"NVIDIA driver": ("nvidia_driver", "version"), "Fabric Manager": ("fabric_manager", "version"),
             "CUDA": ("cuda", "toolkit"), "cuDNN": ("cuda", "cudnn"), "NCCL": ("cuda", "nccl"),
             "container toolkit": ("container_toolkit", "version")}  # fmt: skip
    wanted = {name: (before[part][key], after[part][key]) for name, (part, key) in parts.items()}
    assert {part: (was, will) for part, was, will, _ in versions(plan)["gpu1"]} == wanted
    assert [part for part, _, _, reboot in versions(plan)["gpu1"] if reboot] == ["NVIDIA driver"]
    # As after that upgrade.
    recorded(tmp_path / "recorded", {})
    one = NodePlan(node="gpu1", release="previous", to="current", changes=plan.of("gpu1").changes)
    done = Batch(nodes=("gpu1",), step="done")
    state = State(verb="upgrade", to="current", began="", nodes=(one,), batches=(done,))
    back = planning.plan_rollback(INVENTORY, topology, state, None, head)
    assert {part: (was, will) for part, was, will, _ in versions(back)["gpu1"]} == {
        name: (will, was) for name, (was, will) in wanted.items()
    }


def test_a_release_that_does_not_fit_a_node_is_refused_by_the_plan(head: Pool) -> None:
    """It names no training image for their GPUs."""
    with pytest.raises(UsageFault, match=r"head cannot be provisioned with that release; .*nothing was changed"):
        planning.plan_upgrade(INVENTORY, read_site(INVENTORY).topology, "rehearsal", "head", head)


def test_a_reboot_that_a_node_waits_for_already_is_in_the_plan(head: Pool, tmp_path: Path) -> None:
    """Its batch does it, whatever the release changes there; a node that no batch has is not rebooted."""
    recorded(
        tmp_path / "recorded", {"gpu2": OLDER}, waits={"gpu2": "modules are of another version", "gpu3": "the same"}
    )
    plan = planning.plan_upgrade(INVENTORY, read_site(INVENTORY).topology, "current", "head,gpu2,gpu3", head)
    waits = ("ofed: modules are of another version", "packages that were upgraded: linux-base")
    assert plan.of("gpu2").waits == waits
    assert plan.of("gpu2").reboots == ("NVIDIA driver", *waits)
    lines = plan_lines(plan)
    assert f"gpu2  waits for a reboot already: {waits[0]} (reboot)" in lines
    assert any(line.startswith("1 node to be rebooted") for line in lines)
