#!/usr/bin/python3
"""Ledger and locks of a role's packages on a node with dnf, before and after a transaction of Ansible's own module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.files import STATE_DIR, write_text
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import (
    DNF_VERSIONLOCK,
    PackageError,
    PackageLedger,
    accounts,
    dnf_lock,
    dnf_locked,
    dnf_plan,
    refusals,
)

DOCUMENTATION = r"""
module: package_ledger
short_description: Ledger and version locks of a role's packages, around transactions of ansible.builtin.dnf
version_added: 0.1.0
description:
  - Used by the action plugin of M(elastic_ai.toolkit.package_set) on nodes with dnf, once before a transaction and once
    after it. It installs and removes nothing.
  - Before an installation it refuses what M(elastic_ai.toolkit.package_set) refuses, and otherwise lists in the ledger
    what is about to come. After it, it adds users and groups that package scripts made, and locks pinned versions.
  - Before a removal it only tells what is to go. After it, it removes users, groups, locks and the ledger.
  - Locks are lines of C(versionlock.list). Lines that somebody else wrote stay.
options:
  owner: {description: whose ledger this is, type: str, required: true}
  state: {description: whether the owner's packages come or go, type: str, choices: [present, absent], required: true}
  step: {description: on which side of the transaction this call is, type: str, choices: [before, after],
    required: true}
  wanted: {description: versions by package; "" for any; after a transaction that failed none, type: dict, default: {}}
  forbid: {description: patterns of packages that must not be touched, type: list, elements: str, default: []}
  results: {description: what ansible.builtin.dnf returned under this name in check mode, type: list, elements: str,
    default: []}
  users: {description: local users before the transaction, type: list, elements: str, default: []}
  groups: {description: local groups before the transaction, type: list, elements: str, default: []}
  state_dir: {description: where ledgers are kept, type: path, default: /var/lib/elastic-ai}
  locks: {description: list of the plugin versionlock, type: path, default: /etc/dnf/plugins/versionlock.list}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Judge a transaction of dnf
  elastic_ai.toolkit.package_ledger:
    owner: cuda
    state: present
    step: before
    wanted: {cuda-toolkit-13-0: 13.0.2-1}
    results: ["Installed: cuda-toolkit-13-0-13.0.2-1.x86_64"]
"""
RETURN = r"""
transaction: {description: what is about to be done, or was done by this call, returned: always, type: list}
packages: {description: packages that are to go, returned: always, type: list}
restore: {description: versions by package that is to come back, returned: always, type: dict}
users: {description: local users, returned: always, type: list}
groups: {description: local groups, returned: always, type: list}
"""


class Step:
    """One call of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        """Read ledgers and locks."""
        self.module, self.params = module, module.params
        self.ledger = PackageLedger(Path(self.params["state_dir"]), self.params["owner"])
        self.others = self.ledger.others()
        self.wanted = {name: str(version or "") for name, version in self.params["wanted"].items()}
        self.path = Path(self.params["locks"])
        self.lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []

    def run(self, command: list[str]) -> tuple[int, str]:
        """Exit code and all output of a command."""
        code, out, err = self.module.run_command(command, environ_update={"LC_ALL": "C.UTF-8", "LANGUAGE": ""})
        return code, out + err

    def older(self, one: str, other: str) -> bool:
        """Whether one version is older than the other, epochs included."""
        return self.run(["rpm", "--eval", f'%{{lua:print(rpm.vercmp("{one}", "{other}"))}}'])[1].strip() == "-1"

    def foreign(self) -> set[str]:
        """Packages that somebody else has locked."""
        ours = set(self.ledger.holds).union(*(ledger.holds for ledger in self.others.values()))
        return {dnf_locked(line) for line in self.lines} - ours - {""}

    def pins(self) -> dict[str, str]:
        """Versions that are still to be locked; where somebody else has locked a package, that stays."""
        foreign = self.foreign()
        pins = {name: version for name, version in self.wanted.items() if version and name not in foreign}
        return {name: version for name, version in pins.items() if dnf_lock(name, version) not in self.lines}

    def before_present(self) -> dict[str, Any]:
        """Refuse, or remember what is about to come."""
        plan = dnf_plan(self.params["results"], self.older)
        reasons = refusals(plan, self.wanted, self.params["forbid"], self.foreign(), {})
        if reasons:
            raise PackageError("; ".join(reasons) + ". Nothing was changed")
        done = [str(action) for action in plan.actions]
        done += [f"hold {name} at {version}" for name, version in self.pins().items()]
        if done and not self.module.check_mode:
            new = plan.names("install")  # of kernels another version may be there, and stays
            known = self.run(["rpm", "-q", "--qf", "%{NAME}\n", *new])[1].splitlines() if new else []
            there = [line for line in known if " " not in line]  # not "package x is not installed"
            self.ledger.record(plan, there)
        return {"transaction": done}

    def after_present(self) -> dict[str, Any]:
        """Lock, and remember users and groups."""
        self.ledger.holds.update(self.pins())
        self.ledger.record_accounts(self.params["users"], self.params["groups"])
        self.lock(set(self.ledger.holds), self.ledger.holds)
        return {}

    def before_absent(self) -> dict[str, Any]:
        """What is to go, and what is to come back."""
        elsewhere = set().union(*(ledger.packages for ledger in self.others.values()))
        packages = self.ledger.packages - elsewhere
        if any(ledger.holds for ledger in self.others.values()):
            packages -= {DNF_VERSIONLOCK}
        done = [f"release {name}" for name in sorted(self.released())]
        restore = self.ledger.removed
        return {"changed": self.ledger.exists, "transaction": done, "packages": sorted(packages), "restore": restore}

    def after_absent(self) -> dict[str, Any]:
        """Release, and forget the owner."""
        self.lock(self.released(), {})
        done = self.ledger.remove_accounts(self.run)
        heir = next((ledger for ledger in self.others.values() if ledger.holds), None)
        if heir and DNF_VERSIONLOCK in self.ledger.packages:
            heir.packages.add(DNF_VERSIONLOCK)
            heir.save()
        self.ledger.clear()
        return {"transaction": done}

    def released(self) -> set[str]:
        """Locks of this owner alone."""
        alone = set(self.ledger.holds).difference(*(ledger.holds for ledger in self.others.values()))
        return alone & {dnf_locked(line) for line in self.lines}

    def lock(self, names: set[str], holds: dict[str, str]) -> None:
        """Give these packages these locks; all other lines stay."""
        lines = [line for line in self.lines if dnf_locked(line) not in names]
        lines += [dnf_lock(name, version) for name, version in sorted(holds.items())]
        if sorted(lines) != sorted(self.lines):
            write_text(self.path, "".join(f"{line}\n" for line in lines))  # whole: other people's lines are in it


def main() -> None:
    """Take one step."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "required": True},
            "step": {"type": "str", "choices": ["before", "after"], "required": True},
            "wanted": {"type": "dict", "default": {}},
            "forbid": names,
            "results": names,
            "users": names,
            "groups": names,
            "state_dir": {"type": "path", "default": STATE_DIR},
            "locks": {"type": "path", "default": "/etc/dnf/plugins/versionlock.list"},
        },
        supports_check_mode=True,
    )
    users, groups = (sorted(names) for names in accounts())
    answer: dict[str, Any] = {"transaction": [], "packages": [], "restore": {}, "users": users, "groups": groups}
    step = Step(module)
    try:
        answer.update(getattr(step, f"{module.params['step']}_{module.params['state']}")())
    except PackageError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**{"changed": bool(answer["transaction"]), **answer})


if __name__ == "__main__":
    main()
