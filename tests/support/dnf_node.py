"""package_set on a node with dnf: its action plugin and its ledger in this process, whatever plays dnf and rpm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.node_modules import load

action, package_ledger = load("plugins/action/package_set.py"), load("plugins/modules/package_ledger.py")


class DnfNode:
    """A node in a folder; `dnf` and `commands` are for whoever plays it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.locks = folder, folder / "versionlock.list"
        self.locks.write_text("# of the administrator\n", encoding="utf-8")
        self.held = ""  # what dnf_free says of a lock
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def dnf(self, args: Mapping[str, Any], check: bool) -> dict[str, Any]:
        """What ansible.builtin.dnf answers."""
        raise NotImplementedError

    def commands(self, command: list[str], **_: Any) -> tuple[int, str, str]:
        """Exit code, output and errors of what the ledger runs."""
        raise NotImplementedError

    def locked(self) -> list[str]:
        """Lines of versionlock.list below the administrator's."""
        return self.locks.read_text(encoding="utf-8").splitlines()[1:]

    def ledger(self, args: dict[str, Any], check: bool) -> dict[str, Any]:
        """The module's own code, in this process."""
        options = {"wanted": {}, "forbid": [], "results": [], "users": [], "groups": [], **args}
        options = {**options, "state_dir": str(self.folder / "state"), "locks": str(self.locks)}
        said: list[dict[str, Any]] = []
        module = SimpleNamespace(
            params=options, check_mode=check, run_command=self.commands,
            exit_json=lambda **answer: said.append(answer),
            fail_json=lambda msg: said.append({"failed": True, "msg": msg}),
        )  # fmt: skip
        own, package_ledger.AnsibleModule = package_ledger.AnsibleModule, lambda **_: module
        try:
            package_ledger.main()
        finally:
            package_ledger.AnsibleModule = own
        return said[0]

    def ask(self, check: bool = False, **args: Any) -> dict[str, Any]:
        """The action plugin's answer."""
        task = SimpleNamespace(args={"owner": "demo", **args}, check_mode=check, async_val=0, action="package_set")
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"))
        plugin = action.ActionModule(task, connection, None, None, None, None)

        def execute(module_name: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
            if module_name == action.FREE:
                return {"failed": True, "msg": self.held} if self.held else {"changed": False}
            self.calls.append((module_name, {**arguments, "check": task.check_mode}))
            return (self.dnf if module_name == action.DNF else self.ledger)(arguments, task.check_mode)

        plugin._execute_module = execute
        answer: dict[str, Any] = plugin.run(task_vars={"ansible_facts": {"pkg_mgr": "dnf"}})
        return answer

    def kept(self, owner: str = "demo") -> dict[str, Any]:
        """The ledger's document."""
        data: dict[str, Any] = json.loads((self.folder / f"state/ledger/{owner}.packages.json").read_text())
        return data
