"""Counts what a run does on the nodes, by role: every execution of a module there, and none of the controller's own."""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: task_cost
type: aggregate
short_description: Remote task executions by role and host
description:
  - Writes a JSON document to the file that BENCH_COST_FILE names. Tasks that only the controller works on (set_fact,
    include, debug, assert and their like, and those delegated to it) do not count, nor do skipped ones. A loop counts
    once for each item.
"""

LOCAL = frozenset(
    {"add_host", "assert", "debug", "fail", "group_by", "import_playbook", "import_role", "import_tasks"}
    | {"include_role", "include_tasks", "include_vars", "meta", "pause", "set_fact", "set_stats"}
    | {"role_arguments", "validate_argument_spec"}
)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Follows a run and sums up at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_cost"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """Start at nothing."""
        super().__init__()
        self.remote: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.tasks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.all_executions = 0
        self.skipped: dict[str, int] = defaultdict(int)
        self.actions: dict[str, int] = defaultdict(int)
        self.cpu: dict[str, float] = defaultdict(float)
        self.name, self.spent = "(start)", 0.0
        self.changed = 0

    def book(self, name: str = "") -> None:
        """What Ansible and all that it forked and waited for used since the last call is the last task's."""
        used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        self.cpu[self.name] += used - self.spent
        self.name, self.spent = name, used

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """The next one."""
        self.book(f"{task.get_name()} ({task.action.rsplit('.', 1)[-1]})")

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """The next one."""
        self.v2_playbook_on_task_start(task, False)

    def count(self, result: Any, item: bool = False) -> None:
        """One execution, of a task or of one item of its loop."""
        task = result._task
        answer = result._result
        if not item:
            self.all_executions += 1
            self.changed += bool(answer.get("changed"))
        looped = not item and "results" in answer and task.loop is not None
        action = task.action.rsplit(".", 1)[-1]
        if not item:
            self.actions[action] += 1
        local = action in LOCAL or str(task.delegate_to or "") in ("localhost", "127.0.0.1") or looped
        if local or answer.get("skipped"):
            return
        role = task._role.get_name() if task._role else "(facts)" if action in ("gather_facts", "setup") else "(play)"
        self.remote[role][result._host.get_name()] += 1
        self.tasks[role][task.get_name().rsplit(" : ", 1)[-1]] += 1

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task has worked."""
        self.count(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task's condition does not hold; it was forked all the same."""
        self.actions[result._task.action.rsplit(".", 1)[-1]] += 1
        self.skipped[result._task.get_name()] += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task has failed."""
        self.count(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """One item of a loop has worked."""
        self.count(result, item=True)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """One item of a loop has failed."""
        self.count(result, item=True)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the sums down."""
        self.book()
        document = {
            "remote": self.remote,
            "tasks": self.tasks,
            "executions": self.all_executions,
            "skipped": self.skipped,
            "actions": self.actions,
            "cpu_s": {name: round(spent, 3) for name, spent in self.cpu.items()},
            "changed": self.changed,
            "failed": sum(stats.failures.values()) + sum(stats.dark.values()),
        }
        path = os.environ.get("BENCH_COST_FILE")
        if path:
            Path(path).write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")
