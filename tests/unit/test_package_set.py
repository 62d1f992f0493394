"""package_set against a package manager in memory: what is refused, pinned, remembered, repaired and taken back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load

package_set, packages = load("plugins/modules/package_set.py"), load("plugins/module_utils/packages.py")
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import Action, PackageError, Plan  # noqa: E402

DEPENDS = {"tool": ["lib"], "driver": ["kernel-7"], "other": ["lib"], "clock": []}
AVAILABLE = {
    "tool": ["2.0", "1.0"],
    "lib": ["1.0"],
    "driver": ["1.0"],
    "kernel-7": ["7"],
    "other": ["1"],
    "clock": ["1"],
}
CONFLICTS = {"clock": "oldclock"}


class Memory:
    """A node's packages."""

    def __init__(self, **installed: str) -> None:
        self.packages = dict(installed)
        self.holds: set[str] = set()
        self.available = {name: list(versions) for name, versions in AVAILABLE.items()}
        self.later: dict[str, list[str]] = {}  # known only after the lists were fetched
        self.half: list[str] = []
        self.notes: list[str] = []
        self.log: list[str] = []
        self.fails = ""

    def half_done(self) -> list[str]:
        return self.half

    def repair(self) -> None:
        self.log.append("repair")
        self.half = []

    def installed(self) -> dict[str, str]:
        return dict(self.packages)

    def traces(self) -> set[str]:
        return set(self.packages)

    def held(self) -> set[str]:
        return set(self.holds)

    def lists_age_s(self) -> float:
        return 0.0

    def refresh(self) -> None:
        self.log.append("refresh")
        self.available.update(self.later)

    def versions(self, names: Iterable[str]) -> dict[str, list[str]]:
        return {name: self.available.get(name, []) for name in names}

    def simulate(self, wanted: Mapping[str, str]) -> Plan:
        actions, queue = [], list(wanted.items())
        for name, version in queue:
            version = version or self.available[name][0]
            have = self.packages.get(name)
            if have != version:
                kind = "install" if have is None else "downgrade" if version < have else "upgrade"
                actions.append(Action(kind, name, version, have or ""))
            queue += [(d, "") for d in DEPENDS.get(name, []) if d not in self.packages]
            if CONFLICTS.get(name) in self.packages:
                actions.append(Action("remove", CONFLICTS[name], before=self.packages[CONFLICTS[name]]))
        return Plan(actions)

    def depends(self, plan: Plan) -> dict[str, list[str]]:
        return DEPENDS

    def check_space(self, wanted: Mapping[str, str], plan: Plan) -> None:
        pass

    def install(self, wanted: Mapping[str, str], plan: Plan) -> None:
        self.log.append("install")
        if self.fails:
            raise PackageError(self.fails)
        for action in plan.actions:
            if action.kind == "remove":
                del self.packages[action.name]
            else:
                self.packages[action.name] = action.version

    def hold(self, names: Iterable[str]) -> None:
        self.holds |= set(names)

    def unhold(self, names: Iterable[str]) -> None:
        self.holds -= set(names)

    def dependencies(self) -> dict[str, list[list[str]]]:
        return {n: [[d] for d in DEPENDS.get(n, []) if d in self.packages] for n in self.packages}

    def simulate_purge(self, names: Iterable[str], restore: Iterable[str]) -> Plan:
        return Plan([Action("remove", n, before=self.packages[n]) for n in names])

    def purge(self, names: Iterable[str], restore: Iterable[str]) -> None:
        self.log.append("purge")
        for name in names:
            del self.packages[name]
        self.packages.update(dict.fromkeys(restore, "1"))


class Module:
    """What package_set needs of an AnsibleModule."""

    def __init__(self, check: bool, **params: Any) -> None:
        self.params = params
        self.check_mode = check
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A function that runs the module against a Memory."""
    monkeypatch.setattr(package_set.shutil, "which", lambda name: name)

    def go(memory: Memory, wanted: Mapping[str, str] | None = None, check: bool = False, **more: Any) -> dict[str, Any]:
        monkeypatch.setattr(package_set.apt, "Apt", lambda *arguments: memory)
        params = {"owner": "demo", "forbid": [], "cache_valid_s": 60, "lock_timeout_s": 1, "install_recommends": False}
        module = Module(check, **{**params, "wanted": wanted or {}, "state_dir": str(tmp_path / "state"), **more})
        work = package_set.PackageSet(module)
        answer: dict[str, Any] = work.absent() if more.get("state") == "absent" else work.present()
        return answer

    return go


def test_needrestart_leaves_services_alone_during_a_transaction(tmp_path: Path) -> None:
    """Its hooks of apt end at once when NEEDRESTART_SUSPEND is set (needrestart's README.batch and apt-pinvoke)."""
    module = Module(False, wanted={}, owner="demo", state_dir=str(tmp_path), lock_timeout_s=1, install_recommends=False)
    environments: list[dict[str, str]] = []
    module.run_command = lambda command, environ_update: (0, str(environments.append(environ_update)), "")  # type: ignore[attr-defined]
    package_set.PackageSet(module).run(["apt-get", "install"])
    assert [one.get("NEEDRESTART_SUSPEND") for one in environments] == ["1", "1"]


def ledger(tmp_path: Path, owner: str = "demo") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((tmp_path / "state" / "ledger" / f"{owner}.packages.json").read_text())
    return data


def test_packages_come_with_their_dependencies_and_go_with_them(node: Any, tmp_path: Path) -> None:
    memory = Memory(base="1")
    predicted = node(memory, {"tool": ""}, check=True)
    assert memory.packages == {"base": "1"}
    assert not (tmp_path / "state").exists()
    done = node(memory, {"tool": ""})
    assert predicted["transaction"] == done["transaction"] == ["install tool (2.0)", "install lib (1.0)"]
    assert ledger(tmp_path)["packages"] == ["lib", "tool"]
    assert node(memory, {"tool": ""})["changed"] is False
    assert node(memory, state="absent", check=True)["transaction"] == ["purge lib", "purge tool"]
    node(memory, state="absent")
    assert memory.packages == {"base": "1"}
    assert not (tmp_path / "state").exists()
    assert node(memory, state="absent")["changed"] is False


def test_a_version_pins_downgrades_and_holds(node: Any, tmp_path: Path) -> None:
    memory = Memory(tool="2.0", lib="1.0")
    done = node(memory, {"tool": "1.0"})
    assert done["transaction"] == ["downgrade tool (2.0 -> 1.0)", "hold tool at 1.0"]
    assert memory.packages["tool"] == "1.0"
    assert memory.holds == {"tool"}
    node(memory, state="absent")
    assert memory.packages == {"tool": "1.0", "lib": "1.0"}  # it was there before
    assert memory.holds == set()


def test_a_pin_of_ours_that_lost_its_hold_is_held_again_without_a_transaction(node: Any) -> None:
    memory = Memory(tool="1.0", lib="1.0")
    assert node(memory, {"tool": "1.0"})["transaction"] == ["hold tool at 1.0"]
    assert "install" not in memory.log


def test_a_pin_may_be_moved_by_the_toolkit_and_by_nobody_else(node: Any) -> None:
    memory = Memory(tool="1.0", lib="1.0")
    node(memory, {"tool": "1.0"})
    node(memory, {"tool": "2.0"})
    assert memory.packages["tool"] == "2.0"
    stranger = Memory(tool="1.0", lib="1.0")
    stranger.holds = {"tool"}
    with pytest.raises(PackageError, match="tool is on hold and not by the toolkit: release it"):
        node(stranger, {"tool": "2.0"}, state_dir="/nonexistent")


def test_a_hold_of_the_administrators_is_not_released(node: Any) -> None:
    memory = Memory(tool="1.0", lib="1.0")
    memory.holds = {"tool"}
    node(memory, {"tool": "1.0", "other": ""})
    node(memory, state="absent")
    assert memory.holds == {"tool"}


def test_another_kernel_is_refused_before_anything_is_done_with_who_pulls_it(node: Any, tmp_path: Path) -> None:
    memory = Memory()
    for check in (True, False):
        with pytest.raises(PackageError, match=r"would install kernel-7 \(7\).*driver pulls it \(driver -> kernel-7\)"):
            node(memory, {"driver": "", "tool": ""}, forbid=["kernel-*"], check=check)
    assert memory.packages == {}
    assert memory.log == []
    assert not (tmp_path / "state").exists()


def test_a_missing_version_is_named_with_those_that_exist(node: Any) -> None:
    memory = Memory()
    with pytest.raises(PackageError, match=r"tool 9\.9 is in no repository of this node; there are 2\.0, 1\.0"):
        node(memory, {"tool": "9.9"})
    with pytest.raises(PackageError, match="nosuch is in no repository"):
        node(memory, {"nosuch": ""})
    assert "install" not in memory.log


def test_lists_are_fetched_only_when_something_is_not_known(node: Any) -> None:
    memory = Memory()
    node(memory, {"tool": ""})
    memory.later = {"late": ["1"]}
    node(memory, {"late": "1"})
    assert memory.log == ["install", "refresh", "install"]


def test_check_mode_predicts_what_it_cannot_know_yet_and_fetches_nothing(node: Any) -> None:
    memory = Memory()
    memory.later = {"late": ["1"]}
    answer = node(memory, {"late": "1", "tool": ""}, check=True)
    assert answer["changed"] is True
    assert "install late" in answer["transaction"]
    assert memory.log == []


def test_a_transaction_that_fails_half_way_is_in_the_ledger_and_repaired_by_the_next_run(
    node: Any, tmp_path: Path
) -> None:
    memory = Memory()
    memory.fails = "killed"
    with pytest.raises(PackageError, match="killed"):
        node(memory, {"tool": ""})
    assert ledger(tmp_path)["packages"] == ["lib", "tool"]
    memory.fails, memory.half, memory.packages = "", ["lib"], {"lib": "1.0"}
    answer = node(memory, {"tool": ""})
    assert answer["transaction"][0] == "finish lib"
    assert memory.log == ["install", "repair", "install"]
    assert ledger(tmp_path)["packages"] == ["lib", "tool"]
    assert memory.packages == {"lib": "1.0", "tool": "2.0"}


def test_what_installing_removed_comes_back(node: Any) -> None:
    memory = Memory(oldclock="1")
    node(memory, {"clock": ""})
    assert memory.packages == {"clock": "1"}
    node(memory, state="absent")
    assert memory.packages == {"oldclock": "1"}


def test_what_another_role_needs_stays_and_becomes_its_own(node: Any, tmp_path: Path) -> None:
    memory = Memory()
    node(memory, {"tool": ""}, owner="one")
    node(memory, {"other": ""}, owner="two")
    assert ledger(tmp_path, "two")["packages"] == ["other"]
    answer = node(memory, owner="one", state="absent")
    assert answer["kept"] == {"lib": "needed by other"}
    assert set(memory.packages) == {"lib", "other"}
    node(memory, owner="two", state="absent")
    assert memory.packages == {}
    assert not (tmp_path / "state").exists()


def test_what_the_administrators_package_needs_is_not_taken_away(node: Any) -> None:
    memory = Memory()
    node(memory, {"tool": ""})
    memory.packages["other"] = "1"  # by hand
    with pytest.raises(PackageError, match="other needs lib"):
        node(memory, state="absent")
    assert set(memory.packages) == {"tool", "lib", "other"}


def test_users_and_groups_of_package_scripts_go_too(node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = {"root"}
    commands = []

    class Scripts(Memory):
        def install(self, wanted: Mapping[str, str], plan: Plan) -> None:
            super().install(wanted, plan)
            people.add("_tool")

    def run(self: Any, command: list[str]) -> tuple[int, str]:
        commands.append(command)
        people.discard(command[1])
        return 0, ""

    for module in (package_set, packages):
        monkeypatch.setattr(module, "accounts", lambda: (set(people), set(people)))
    monkeypatch.setattr(package_set.PackageSet, "run", run)
    memory = Scripts()
    node(memory, {"tool": ""})
    assert ledger(tmp_path)["users"] == ["_tool"]
    node(memory, state="absent")
    assert people == {"root"}
    assert commands == [["userdel", "_tool"]]
