"""package_set on the controller: with dnf, Ansible's own module does the work between two looks at the ledger."""

from __future__ import annotations

import re
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import (
    ARGUMENTS,
    DNF_VERSIONLOCK,
    PackageError,
    dnf_plan,
    refuse_removals,
)

MODULE, LEDGER, DNF = "elastic_ai.toolkit.package_set", "elastic_ai.toolkit.package_ledger", "ansible.builtin.dnf"
FREE = "elastic_ai.toolkit.dnf_free"
Answer = dict[str, Any]


def unknown(answer: Answer) -> list[str]:
    """What dnf has in no repository."""
    found = (re.fullmatch(r"No package (.+) available\.", str(line)) for line in answer.get("failures", []))
    return [match[1] for match in found if match]


def refusal(answer: Answer) -> str:
    """Why a module failed, in one line."""
    return " ".join("; ".join([answer.get("msg", ""), *map(str, answer.get("failures", []))]).split())


class ActionModule(ActionBase):
    """Nodes with dnf are served from here, all others by the module."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> Answer:
        """The module's answer, or one of the same form."""
        result: Answer = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        if self.task_vars.get("ansible_facts", {}).get("pkg_mgr") != "dnf":
            result.update(self._execute_module(MODULE, task_vars=self.task_vars))
            return result
        self.args: Answer = self.validate_argument_spec(ARGUMENTS)[1]
        try:
            self._free()
            done = self._present() if self.args["state"] == "present" else self._absent()
            result.update(changed=bool(done), transaction=done, manager="dnf", kept={})
        except PackageError as error:
            result.update(failed=True, msg=str(error))
        return result

    def _call(self, module: str, arguments: Answer) -> Answer:
        answer: Answer = self._execute_module(module, arguments, task_vars=self.task_vars)
        return answer

    def _free(self) -> None:
        """Wait for dnf's locks. Ansible's module has no time limit of its own, whatever its lock_timeout says."""
        answer = self._call(FREE, {"lock_timeout_s": self.args["lock_timeout_s"]})
        if answer.get("failed"):
            raise PackageError(refusal(answer))

    def _ledger(self, step: str, **arguments: Any) -> Answer:
        """The node's ledger, before or after a transaction."""
        own = {name: self.args[name] for name in ("owner", "state", "state_dir")}
        answer = self._call(LEDGER, {**own, "step": step, **arguments})
        if answer.get("failed"):
            raise PackageError(refusal(answer))
        return answer

    def _dnf(self, names: list[str], simulate: bool = False, state: str = "present", **arguments: Any) -> Answer:
        """One transaction of dnf, or what it would do."""
        if not names:
            return {"results": []}
        options = {"install_weak_deps": self.args["install_recommends"]}
        check = self._task.check_mode
        self._task.check_mode = check or simulate
        try:
            return self._call(DNF, {"name": names, "state": state, **options, **arguments})
        finally:
            self._task.check_mode = check

    def _present(self) -> list[str]:
        wanted = {name: str(version or "") for name, version in self.args["wanted"].items()}
        pinned = any(wanted.values())
        specs = [f"{name}-{version}" if version else name for name, version in wanted.items()]
        specs += [DNF_VERSIONLOCK] if pinned and DNF_VERSIONLOCK not in wanted else []
        # Our own locks must not stand in a new pin's way; those of others are judged with the ledger.
        options = {"allow_downgrade": pinned, "disable_plugin": ["versionlock"] if pinned else []}
        plan = self._dnf(specs, simulate=True, **options)
        missing = unknown(plan)
        if missing and not self._task.check_mode:
            plan = self._dnf(specs, simulate=True, update_cache=True, **options)
            missing = unknown(plan)
        if missing and self._task.check_mode:  # their repository may be set up by the same run
            plan = self._dnf([spec for spec in specs if spec not in missing], simulate=True, **options)
            plan = {"results": []} if plan.get("failed") else plan
        elif missing:
            raise PackageError(
                f"{', '.join(missing)}: in no repository of this node. Nothing was changed; add the repository (role"
                " repos) or choose another stack release or version"
            )
        if plan.get("failed"):
            raise PackageError(f"dnf refuses: {refusal(plan)}. Nothing was changed")
        before = self._ledger("before", wanted=wanted, forbid=self.args["forbid"], results=plan["results"])
        done: list[str] = before["transaction"] + [f"install {spec}" for spec in missing]
        if done and not self._task.check_mode:
            outcome = self._dnf(specs, **options)
            installed = {} if outcome.get("failed") else wanted
            self._ledger("after", wanted=installed, users=before["users"], groups=before["groups"])
            if outcome.get("failed"):
                raise PackageError(f"dnf failed: {refusal(outcome)}")
        return done

    def _absent(self) -> list[str]:
        before = self._ledger("before")
        names, restore = before["packages"], before["restore"]
        plan = self._dnf(names, simulate=True, state="absent")
        if plan.get("failed"):
            raise PackageError(f"dnf refuses: {refusal(plan)}. Nothing was changed")
        removed = dnf_plan(plan["results"], lambda one, other: False).names("remove")
        refuse_removals(self.args["owner"], names, removed)
        done: list[str] = before["transaction"] + [f"purge {name}" for name in removed]
        done += [f"install {name} again" for name in restore]
        if self._task.check_mode or not before["changed"]:
            return done
        outcome = self._dnf(names, state="absent")
        if not outcome.get("failed"):  # by its version first: by its name, what makes it obsolete would come instead
            outcome = self._dnf([f"{name}-{version}" for name, version in restore.items()])
            outcome = self._dnf(list(restore)) if outcome.get("failed") else outcome
        if outcome.get("failed"):
            raise PackageError(f"dnf failed: {refusal(outcome)}")
        return done + list(self._ledger("after")["transaction"])
