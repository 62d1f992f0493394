"""Strategy linear, in which what asks no node is done in Ansible's own process instead of in one forked for it."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from ansible.executor.task_executor import TaskExecutor
from ansible.plugins import loader as plugin_loader
from ansible.plugins.strategy.linear import StrategyModule as Linear

try:
    from ansible._internal._task import TaskContext
    from ansible.executor.task_result import _RawTaskResult
except ImportError:  # another release of ansible-core: plain linear then
    TaskContext = None

DOCUMENTATION = r"""
name: linear_here
short_description: Strategy linear that forks no process for what asks no node
version_added: 0.1.0
description:
  - Order, results and output are those of P(ansible.builtin.linear#strategy), of which this is a small change.
  - Strategy linear forks a process for each task on each host. Tasks that only the controller works on (set_fact,
    assert, debug, includes, checks of a role's arguments), and tasks whose condition leaves a host out, are most of a
    converged run; a process for each costs three times what the task itself does.
  - Where many hosts meet many cores, processes beside each other are the faster way, and everything is forked as ever.
  - ansible-core calls strategies that are not its own deprecated, for it does not promise that what they rest on stays.
    With a release that this one was not written for, it is plain linear.
author: Elastic AI Toolkit
"""

PLAIN = "assert debug fail group_by include_role include_tasks set_fact validate_argument_spec"
#: Actions that reach no node, by all of their names.
HERE = frozenset(f"{prefix}{name}" for name in PLAIN.split() for prefix in ("", "ansible.builtin.", "ansible.legacy."))
#: Up to so many hosts in a play, or so many cores, forks are no faster. Measured: 17 ms of the main process for a task
#: on a host here; 8 for one that is forked, and 40 of another core.
FEW_HOSTS = 8
FEW_CORES = 3


class _AsksNodeError(BaseException):
    """The task's condition holds, so it is one for a worker. No Exception, for the executor makes results of those."""


def _not_here(**_: Any) -> NoReturn:
    raise _AsksNodeError


class StrategyModule(Linear):  # type: ignore[misc]
    """Linear, but for where a task is worked on."""

    def _queue_task(self, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any) -> None:
        """Do it here where that needs no node; else as linear does."""
        if not self._done_here(host, task, task_vars, play_context):
            super()._queue_task(host, task, task_vars, play_context)

    def _done_here(self, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any) -> bool:
        if TaskContext is None or task.throttle or task.timeout or task.retries is not None or task.until:
            return False
        if len(self._hosts_cache) > FEW_HOSTS and len(os.sched_getaffinity(0)) > FEW_CORES:
            return False
        here = task.action in HERE and not task.async_val
        if not here and (not task.when or task.loop is not None or task.loop_with):
            return False
        own: Any = task.copy(exclude_parent=True, exclude_tasks=True)  # the executor fills in what it is given
        own._parent = task._parent
        if not here:
            own.post_validate = _not_here  # what comes next when the condition holds
        # A worker has variables of its own; here those of a task that goes to a worker must stay as they are.
        variables = task_vars if here else dict(task_vars)
        executor = TaskExecutor(
            host, own, variables, play_context, self._loader, plugin_loader.get_plugin_loader_namespace(),
            self._final_q, self._variable_manager,
        )  # fmt: skip
        # Before it is done: what a loop tells on its way is looked up there, too.
        self._queued_task_cache[(host.name, task._uuid)] = {
            "host": host, "task": task, "task_vars": task_vars, "play_context": play_context,
        }  # fmt: skip
        if here:
            self._tqm.send_callback("v2_runner_on_start", host, task)
        try:
            with TaskContext(own):
                answer = executor.run()
        except _AsksNodeError:
            return False
        if not here:
            self._tqm.send_callback("v2_runner_on_start", host, task)
        # Through the queue of the workers' results, so that nothing of the answer is shared with what was templated.
        result = _RawTaskResult(host=host, task=own, return_data=answer, task_fields=own.dump_attrs())
        self._final_q.send_task_result(result)
        self._pending_results += 1
        return True
