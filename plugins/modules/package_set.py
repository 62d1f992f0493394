#!/usr/bin/python3
"""Install a role's packages in one transaction that can be refused, pinned, and taken back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils import apt
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import (
    ARGUMENTS,
    PackageError,
    PackageLedger,
    Plan,
    accounts,
    forbidden,
    refusals,
    refuse_removals,
    still_needed,
)

DOCUMENTATION = r"""
module: package_set
short_description: Packages of a role in one transaction, pinned and reversible
version_added: 0.1.0
description:
  - Simulates first and refuses a transaction that would touch a forbidden package, a package that somebody else holds,
    or that would downgrade something which no pinned version asks for (parts of one source share theirs). Nothing is
    done then.
  - A version pins the package. It is installed in exactly that version, downgraded if need be, and held.
  - A ledger on the node lists what each owner's transactions newly installed, users and groups that package scripts
    made included. V(absent) purges exactly that, except what another owner's ledger lists or another package needs.
  - Check mode asks the package manager. Packages that it does not know yet, because their repository is set up by the
    same run, are predicted as changes.
  - With apt this module does all of it. With dnf its action plugin calls M(ansible.builtin.dnf) to simulate, install
    and remove, and M(elastic_ai.toolkit.package_ledger) to judge, remember and lock versions. There a removal that
    would take other packages along is refused, and dnf decides by itself when package lists are too old.
options:
  owner: {description: whose ledger this goes to, type: str, required: true}
  wanted: {description: versions by package; "" for any, type: dict, default: {}}
  forbid: {description: patterns of packages that must not be touched, type: list, elements: str, default: []}
  state: {description: V(absent) takes back what the owner's ledger lists, type: str, choices: [present, absent],
    default: present}
  cache_valid_s: {description: package lists of apt younger than this are not fetched again, type: int, default: 3600}
  lock_timeout_s: {description: how long to wait for another package manager, type: int, default: 300}
  install_recommends: {description: also install what packages recommend, type: bool, default: false}
  state_dir: {description: where ledgers are kept, type: path, default: /var/lib/elastic-ai}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Install the toolkit in the version of the stack
  elastic_ai.toolkit.package_set:
    owner: cuda
    wanted: {cuda-toolkit-13-0: 13.0.2-1, gcc: ""}
    forbid: ["linux-image-*"]
"""
RETURN = r"""
transaction: {description: what was (in check mode - would be) done by package, returned: always, type: list}
manager: {description: apt or dnf, returned: always, type: str}
kept: {description: packages of the ledger that stay and who needs each, returned: when state is absent, type: dict}
"""


class PackageSet:
    """One call of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        """Read the ledger."""
        self.module = module
        self.wanted = {name: str(version or "") for name, version in module.params["wanted"].items()}
        self.ledger = PackageLedger(Path(module.params["state_dir"]), module.params["owner"])
        if not shutil.which("apt-get"):
            raise PackageError("neither apt-get nor dnf is on this node, as far as its facts tell (pkg_mgr)")
        self.manager: Any = apt.Apt(self.run, module.params["lock_timeout_s"], module.params["install_recommends"])

    def run(self, command: list[str]) -> tuple[int, str]:
        """Exit code and all output of a command."""
        code, out, err = self.module.run_command(command, environ_update=apt.ENVIRONMENT)
        return code, out + err

    def off(self, installed: dict[str, str], held: set[str]) -> list[str]:
        """Wanted packages that are missing, of another version, or pinned and not held."""
        return [
            name
            for name, version in self.wanted.items()
            if name not in installed or (version and (installed[name] != version or name not in held))
        ]

    def unknown(self) -> dict[str, list[str]]:
        """Wanted packages or versions that cannot be had, each with the versions that can."""
        installed = self.manager.installed()
        missing = {n: v for n, v in self.wanted.items() if n not in installed or (v and installed[n] != v)}
        known = self.manager.versions(missing)
        return {n: known[n] for n, v in missing.items() if (v and v not in known[n]) or (not v and not known[n])}

    def lists(self) -> None:
        """Fetch package lists if they are old or do not know something wanted."""
        if self.manager.lists_age_s() > self.module.params["cache_valid_s"] or self.unknown():
            self.manager.refresh()

    def refuse_unknown(self, unknown: dict[str, list[str]]) -> None:
        """Say what cannot be had, and what can."""
        reasons = []
        for name, versions in unknown.items():
            if versions:
                reasons.append(
                    f"{name} {self.wanted[name]} is in no repository of this node; there are {', '.join(versions)}"
                )
            else:
                reasons.append(f"{name} is in no repository of this node")
        hints = f" Fetching the lists said: {'; '.join(self.manager.notes[:3])}." if self.manager.notes else ""
        raise PackageError(
            f"{'; '.join(reasons)}.{hints} Nothing was changed; add the repository (role repos) or choose another stack"
            " release or version"
        )

    def check(self, unknown: dict[str, list[str]], todo: dict[str, str]) -> Plan:
        """The plan, or an error with every reason why it may not run."""
        known = {name: version for name, version in todo.items() if name not in unknown}
        try:
            plan = self.manager.simulate(known) if known else Plan()
        except PackageError:
            if not (self.module.check_mode and unknown):  # what it needs may come from the repository that is missing
                raise
            plan = Plan()
        foreign = self.manager.held() - set(self.ledger.holds)
        for ledger in self.ledger.others().values():
            foreign -= set(ledger.holds)
        patterns = self.module.params["forbid"]
        depends = self.manager.depends(plan) if forbidden(plan, patterns) else {}
        reasons = refusals(plan, known, patterns, foreign, depends)
        if reasons:
            raise PackageError("; ".join(reasons) + ". Nothing was changed")
        return plan

    def present(self) -> dict[str, Any]:
        """Have the wanted packages."""
        half_done = self.manager.half_done()
        installed, held = self.manager.installed(), self.manager.held()
        todo = {name: self.wanted[name] for name in self.off(installed, held)}
        if not todo and not half_done:
            return {"changed": False, "transaction": []}
        check_mode = self.module.check_mode
        done = [f"finish {name}" for name in half_done]
        if half_done and not check_mode:
            self.manager.repair()
        to_get = {n: v for n, v in todo.items() if n not in installed or (v and installed[n] != v) or n in half_done}
        if to_get and not check_mode:
            self.lists()
        for note in self.manager.notes[:5]:
            self.module.warn(note)
        unknown = self.unknown() if to_get else {}
        if unknown and not check_mode:
            self.refuse_unknown(unknown)
        plan = self.check(unknown, to_get)
        done += [str(action) for action in plan.actions] + [f"install {name}" for name in unknown]
        holds = [name for name, version in todo.items() if version]
        done += [f"hold {name} at {self.wanted[name]}" for name in holds]
        if not check_mode:
            if plan.actions:
                self.transact(to_get, plan, set(installed) - set(half_done))
            if holds:
                self.ledger.holds.update({n: self.wanted[n] for n in holds if n not in held or n in self.ledger.holds})
                self.ledger.save()
                self.manager.hold(holds)
        return {"changed": bool(done), "transaction": done}

    def transact(self, wanted: dict[str, str], plan: Plan, before: set[str]) -> None:
        """Install, and keep the ledger right even when this is killed half-way."""
        self.manager.check_space(wanted, plan)
        users, groups = accounts()
        self.ledger.record(plan, before)
        try:
            self.manager.install(wanted, plan)
        finally:
            self.ledger.record_accounts(users, groups)

    def absent(self) -> dict[str, Any]:
        """Take back what the ledger lists."""
        if not self.ledger.exists:
            return {"changed": False, "transaction": [], "kept": {}}
        if self.manager.half_done() and not self.module.check_mode:
            self.manager.repair()
        others = self.ledger.others()
        elsewhere = {name: owner for owner, ledger in others.items() for name in ledger.packages}
        traces, installed = self.manager.traces(), self.manager.installed()
        candidates = (self.ledger.packages & traces) - set(elsewhere)
        restore = sorted(set(self.ledger.removed) - set(installed))
        depends = self.manager.dependencies()
        kept = still_needed(
            {**depends, **{name: depends.get(name, []) for name in restore}}, candidates & set(installed)
        )
        # What stays for another owner's packages becomes that owner's; what is nobody's stops us.
        heirs = {name: self.heir(name, kept, elsewhere) for name in kept}
        nobody = sorted(f"{needer} needs {name}" for name, needer in kept.items() if not heirs[name])
        if nobody:
            raise PackageError(
                f"packages of {self.module.params['owner']} cannot be removed, because packages that the toolkit"
                f" did not install need them: {'; '.join(nobody)}. Nothing was changed; remove those packages first"
            )
        names = sorted(candidates - set(kept))
        plan = self.manager.simulate_purge(names, restore) if names or restore else Plan()
        refuse_removals(self.module.params["owner"], names, plan.names("remove"))
        owned_elsewhere = {name for ledger in others.values() for name in ledger.holds}
        holds = sorted((set(self.ledger.holds) - owned_elsewhere) & self.manager.held())
        done = [f"release {name}" for name in holds] + [f"purge {name}" for name in names]
        done += [f"install {name} again" for name in restore]
        result = {"changed": True, "transaction": done, "kept": {n: f"needed by {kept[n]}" for n in sorted(kept)}}
        if self.module.check_mode:
            return result
        if holds:
            self.manager.unhold(holds)
        if names or restore:
            self.manager.purge(names, restore)
        result["transaction"] += self.ledger.remove_accounts(self.run)
        for name, owner in heirs.items():
            others[owner].packages.add(name)
            others[owner].save()
        self.ledger.clear()
        return result

    def heir(self, name: str, kept: dict[str, str], elsewhere: dict[str, str]) -> str:
        """The owner whose package needs a package that stays, "" when that is nobody's."""
        while name in kept:
            name = kept[name]
        return elsewhere.get(name, "")


def main() -> None:
    """Bring the packages to their wanted state."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        packages = PackageSet(module)
        result = packages.present() if module.params["state"] == "present" else packages.absent()
    except PackageError as error:
        module.fail_json(msg=str(error))
    module.exit_json(manager="apt", **result)


if __name__ == "__main__":
    main()
