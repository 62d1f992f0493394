"""package_set where dnf is: Ansible's module in memory, in the words that the real one was recorded with."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.dnf_node import DnfNode, action, package_ledger
from tests.support.node_modules import ROOT, load

packages = load("plugins/module_utils/packages.py")
RECORDED = json.loads((ROOT / "tests/data/dnf/answers.json").read_text(encoding="utf-8"))["answers"]
REPOSITORY = {
    "tool": ["1.0-1.el9", "2.0-1.el9"],
    "lib": ["1.0-1.el9"],
    "driver": ["3:3.0-1.el9"],
    "kernel-core": ["5.14.0-600.el9"],
    "people": ["1-1.el9"],
    "python3-dnf-plugin-versionlock": ["4.3.1-1.el9"],
}
REQUIRES = {"tool": ["lib"], "driver": ["kernel-core"]}


class Node(DnfNode):
    """RPM packages in memory."""

    def __init__(self, folder: Path, **installed: str) -> None:
        super().__init__(folder)
        self.packages, self.repository, self.later = dict(installed), dict(REPOSITORY), dict[str, list[str]]()
        self.people = {"root"}
        self.fails = ""

    def dnf(self, args: Mapping[str, Any], check: bool) -> dict[str, Any]:
        """What the real one does of it, in its words."""
        if args.get("update_cache"):
            self.repository.update(self.later)
        new, gone = {}, set[str]()
        if args["state"] == "absent":
            gone = set(args["name"]) & set(self.packages)
            gone |= {name for name in self.packages if gone & set(REQUIRES.get(name, []))}
        names = list(args["name"]) if args["state"] == "present" else []
        known = {f"{n}-{v}": (n, v) for n, vs in self.repository.items() for v in vs}
        for spec in names:
            name, version = known.get(spec, (spec, ""))
            if name not in self.repository:
                return {"failed": True, "failures": [f"No package {spec} available."], "msg": "Failed", "results": []}
            have, version = self.packages.get(name), version or self.repository[name][-1]
            if have is None or (have != version and spec != name and (args["allow_downgrade"] or have < version)):
                new[name] = version
            names += [one for one in REQUIRES.get(name, []) if one not in self.packages]
        old = {name: self.packages[name] for name in {*gone, *new} if name in self.packages}
        results = [f"Installed: {n}-{v}.noarch" for n, v in new.items()]
        results += [f"Removed: {n}-{v}.noarch" for n, v in old.items()]
        if not check and self.fails:
            return {"failed": True, "msg": self.fails, "results": []}
        if not check:
            self.packages = {n: v for n, v in self.packages.items() if n not in gone} | new
            self.people |= {f"_{name}" for name in new if name == "people"}
        return {"changed": bool(results), "results": results}

    def commands(self, command: list[str], **_: Any) -> tuple[int, str, str]:
        """rpm and userdel."""
        if command[1] == "--eval":
            one, other = command[2].split('"')[1::2]
            return 0, f"{(one > other) - (one < other)}\n", ""
        if command[0] == "rpm":
            there = [n if n in self.packages else f"package {n} is not installed" for n in command[4:]]
            return 1, "\n".join(there), ""
        self.people.discard(command[1])
        return 0, "", ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    for module in (packages, package_ledger):
        monkeypatch.setattr(module, "accounts", lambda: (set(made.people), {"root"}))
    return made


def plan_of(answer: Mapping[str, Any]) -> list[str]:
    plan = packages.dnf_plan(answer["results"], lambda one, other: one < other)
    return [str(one) for one in plan.actions]


def test_the_real_modules_answers_are_read() -> None:
    unknown, fresh, locked, removal, nothing, downgrade, held = RECORDED
    assert action.unknown(unknown["answer"]) == ["nosuch"]
    assert plan_of(fresh["answer"]) == [
        "install lib (1.0-1.el9)",
        "install other (1-1.el9)",
        "install tool (1.0-1.el9)",
    ]
    for answer in (locked["answer"], held["answer"]):
        assert action.unknown(answer) == []
        assert "filtered out by exclude filtering" in action.refusal(answer)
    assert plan_of(removal["answer"]) == ["remove lib (1.0-1.el9)", "remove tool (1.0-1.el9)"]
    assert plan_of(nothing["answer"]) == []
    assert plan_of(downgrade["answer"]) == ["downgrade tool (2.0-1.el9 -> 1.0-1.el9)"]


def test_all_names_go_into_one_transaction_that_check_mode_predicts(node: Node) -> None:
    wanted = {"tool": "1.0-1.el9", "people": ""}
    predicted = node.ask(check=True, wanted=wanted)
    assert (node.packages, node.locked(), (node.folder / "state").exists()) == ({}, [], False)
    done = node.ask(wanted=wanted)
    assert predicted["transaction"] == done["transaction"] == [
        "install lib (1.0-1.el9)", "install people (1-1.el9)",
        "install python3-dnf-plugin-versionlock (4.3.1-1.el9)", "install tool (1.0-1.el9)", "hold tool at 1.0-1.el9",
    ]  # fmt: skip
    real = [args for module, args in node.calls if module == "ansible.builtin.dnf" and not args["check"]]
    assert [args["name"] for args in real] == [["tool-1.0-1.el9", "people", "python3-dnf-plugin-versionlock"]]
    assert node.locked() == ["tool-0:1.0-1.el9.*"]
    assert node.kept()["packages"] == ["lib", "people", "python3-dnf-plugin-versionlock", "tool"]
    assert node.kept()["users"] == ["_people"]
    assert node.ask(wanted=wanted) == {"changed": False, "transaction": [], "manager": "dnf", "kept": {}}


def test_a_pin_moves_both_ways_past_its_own_lock(node: Node) -> None:
    for version in ("1.0-1.el9", "2.0-1.el9", "1.0-1.el9"):
        node.ask(wanted={"tool": version})
        assert (node.packages["tool"], node.locked()) == (version, [f"tool-0:{version}.*"])


def test_a_lock_of_the_administrators_is_minded_and_stays(node: Node) -> None:
    node.packages = {"tool": "1.0-1.el9", "lib": "1.0-1.el9"}
    node.locks.write_text("# of the administrator\ntool-0:1.0-1.el9.*\n", encoding="utf-8")
    answer = node.ask(wanted={"tool": "2.0-1.el9"})
    assert (answer["failed"], node.packages["tool"]) == (True, "1.0-1.el9")
    assert "tool is on hold and not by the toolkit" in answer["msg"]
    node.ask(wanted={"tool": "1.0-1.el9", "people": ""})
    node.ask(state="absent")
    assert node.locked() == ["tool-0:1.0-1.el9.*"]


def test_a_forbidden_package_is_refused_before_anything_is_done(node: Node) -> None:
    for check in (True, False):
        answer = node.ask(check=check, wanted={"driver": ""}, forbid=["kernel-core*"])
        assert answer["failed"]
        assert "would install kernel-core (5.14.0-600.el9), which this role must not touch" in answer["msg"]
    assert (node.packages, (node.folder / "state").exists()) == ({}, False)


def test_what_is_in_no_repository_is_predicted_in_check_mode_and_looked_for_once_more(node: Node) -> None:
    assert "late" in node.ask(wanted={"late": ""})["msg"]
    assert node.ask(check=True, wanted={"late": "", "tool": ""})["transaction"][-1] == "install late"
    node.later = {"late": ["1-1"]}
    assert node.ask(wanted={"late": ""})["transaction"] == ["install late (1-1)"]


def test_a_transaction_that_fails_is_in_the_ledger_and_locks_nothing(node: Node) -> None:
    node.fails = "Failed to download packages: all mirrors were tried"
    answer = node.ask(wanted={"tool": "1.0-1.el9"})
    assert (answer["failed"], answer["msg"]) == (True, f"dnf failed: {node.fails}")
    assert "tool" in node.kept()["packages"]
    assert (node.kept()["holds"], node.locked()) == ({}, [])


def test_locks_of_others_are_there_after_a_full_disk(node: Node) -> None:
    node.ask(wanted={"tool": ""})
    others = [f"# of the administrator: {number:04}" for number in range(300)]
    node.locks.write_text("\n".join(others) + "\n", encoding="utf-8")
    node.locks.chmod(0o640)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            node.ask(wanted={"tool": "1.0-1.el9"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert node.locks.read_text(encoding="utf-8").splitlines() == others
    assert not list(node.folder.glob("tmp*"))
    node.ask(wanted={"tool": "1.0-1.el9"})
    assert node.locks.read_text(encoding="utf-8").splitlines() == [*others, "tool-0:1.0-1.el9.*"]
    assert node.locks.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("state", ["present", "absent"])
def test_dnf_is_not_asked_while_its_lock_is_held(node: Node, state: str) -> None:
    """Ansible's own module has an option lock_timeout, which it does not read: it would wait without end."""
    node.held = "another package manager is at work: /var/lib/dnf/rpmdb_lock.pid is held by process 7 (dnf upgrade)"
    answer = node.ask(wanted={"tool": "1.0-1.el9"}, state=state)
    assert (answer["failed"], answer["msg"], node.calls) == (True, node.held, [])


def test_what_was_there_is_not_taken_away(node: Node) -> None:
    """Of a kernel another version may be there, beside which a new one is installed."""
    node.packages = {"lib": "1.0-1.el9"}
    node.ask(wanted={"tool": ""})
    assert node.kept()["packages"] == ["tool"]
    node.ask(state="absent")
    assert node.packages == {"lib": "1.0-1.el9"}


def test_absent_takes_back_what_came_and_predicts_it(node: Node) -> None:
    node.ask(wanted={"tool": "1.0-1.el9", "people": ""})
    predicted = node.ask(check=True, state="absent")["transaction"]
    assert node.packages
    assert node.ask(state="absent")["transaction"] == [*predicted, "userdel _people"]
    assert (node.packages, node.people, node.locked(), (node.folder / "state").exists()) == ({}, {"root"}, [], False)
    assert node.ask(state="absent")["changed"] is False


def test_a_removal_that_takes_others_along_is_refused(node: Node) -> None:
    node.ask(wanted={"lib": ""})
    node.packages["tool"] = "1.0-1.el9"  # by hand
    answer = node.ask(state="absent")
    assert "would also remove tool, which it did not install" in answer["msg"]
    assert set(node.packages) == {"lib", "tool"}


def test_what_makes_locks_work_stays_as_long_as_there_are_any(node: Node) -> None:
    node.ask(owner="one", wanted={"tool": "1.0-1.el9"})
    node.ask(owner="two", wanted={"driver": "3:3.0-1.el9"})
    node.ask(owner="one", state="absent")
    assert set(node.packages) == {"driver", "kernel-core", "python3-dnf-plugin-versionlock"}
    assert node.locked() == ["driver-3:3.0-1.el9.*"]
    node.ask(owner="two", state="absent")
    assert (node.packages, node.locked()) == ({}, [])


def test_what_a_transaction_made_obsolete_comes_back_in_its_version(node: Node) -> None:
    state = node.folder / "state/ledger"
    state.mkdir(parents=True)
    ledger = {"packages": ["people"], "removed": {"tool": "1.0-1.el9"}}
    (state / "demo.packages.json").write_text(json.dumps(ledger), encoding="utf-8")
    node.packages = {"people": "1-1.el9"}
    assert node.ask(state="absent")["transaction"][:2] == ["purge people", "install tool again"]
    assert node.packages["tool"] == "1.0-1.el9"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("tool-0:1.0-1.el9.*", "tool"),
        ("nvidia-open-3:610.57.04-1.el9.*", "nvidia-open"),
        ("!bad-0:1.0-1.*", ""),
        ("# a-1:2", ""),
        ("", ""),
    ],
)
def test_lines_of_the_list_of_locks(line: str, name: str) -> None:
    assert packages.dnf_locked(line) == name


def test_other_package_managers_are_the_modules(node: Node) -> None:
    asked: list[Iterable[Any]] = []
    task = SimpleNamespace(args={"owner": "demo"}, check_mode=False, async_val=0, action="package_set")
    plugin = action.ActionModule(task, SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp")), None, None, None, None)
    plugin._execute_module = lambda *args, **_: asked.append(args) or {"manager": "apt"}
    assert plugin.run(task_vars={"ansible_facts": {"pkg_mgr": "apt"}}) == {"manager": "apt"}
    assert asked == [("elastic_ai.toolkit.package_set",)]
