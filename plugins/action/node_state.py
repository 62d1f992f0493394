"""node_state on the controller: the same reading, without Ansible's own code on the node where that will do."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import reading


class ActionModule(ActionBase):
    """Asks in the short way, and else the module."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        answer = reading.ask(self, "node_state", dict(self._task.args), task_vars or {})
        if answer is None:
            answer = self._execute_module("elastic_ai.toolkit.node_state", task_vars=task_vars)
        result.update(answer)
        return result
