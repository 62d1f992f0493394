"""Writes down which tasks changed (in check mode: would change) what, one JSON line each, for tests to compare.

Enabled by ANSIBLE_CALLBACKS_ENABLED=changes; the file is named by ELASTIC_AI_CHANGES_FILE.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: changes
type: aggregate
short_description: One JSON line per changed task and host
description: Host, role, task and what the module says of it (paths, packages).
"""


class CallbackModule(CallbackBase):
    """One line for each task that reports a change."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "changes"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task ended well on a host; loops are told as a whole."""
        answer = result._result
        if not answer.get("changed"):
            return
        task, host = result._task, result._host.get_name()
        role = task._role.get_name() if task._role else ""
        line = {
            "host": (answer.get("_ansible_delegated_vars") or {}).get("ansible_delegated_host") or host,
            "role": role,
            "task": task.get_name(),
            "paths": answer.get("changed_paths", []),
            "packages": [entry.split()[1] for entry in answer.get("transaction", []) if entry.startswith("install ")],
        }
        with Path(os.environ["ELASTIC_AI_CHANGES_FILE"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
