"""Writes a recording of every node that a playbook runs on, for the canned connection to answer from.

    ANSIBLE_CALLBACK_PLUGINS=tests/plugins/callback ANSIBLE_CALLBACKS_ENABLED=record_nodes RECORD_NODES=DIR \\
        ansible-playbook site.yml -i inventories/lab

Run it over nodes that are converged already: what is recorded then is a node on which nothing is left to do. Facts,
everything that node_state read (queries of all roles together), and what commands printed; no environment, no keys.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: record_nodes
type: notification
short_description: Record what modules read of each node
description:
  - Writes one JSON document per node into the folder that the environment names in RECORD_NODES.
"""

LEFT_OUT = ("ansible_env", "ansible_ssh_host_key", "ansible_machine_id", "ansible_date_time")
PARTS = ("packages", "units", "files", "contents", "links", "sysctls", "modules", "users")
SINGLE = (
    "kernel",
    "kernels",
    "cmdline",
    "in_container",
    "modules_loadable",
    "reboot_hints",
    "limits",
    "cpus",
    "package_lists",
)


class CallbackModule(CallbackBase):
    """Collects in memory, writes at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record_nodes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """Nothing is recorded yet."""
        super().__init__()
        self.folder = os.environ.get("RECORD_NODES", "")
        self.nodes: dict[str, dict[str, Any]] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        """Take what a read told."""
        told, action = result._result, str(result._task.action).rsplit(".", 1)[-1]
        if result._task.delegate_to or result._task.no_log:
            return
        node = self.nodes.setdefault(
            result._host.get_name(),
            {"about": "Recorded by record_nodes", "subsets": [], "ansible_facts": {}, "modules": {}, "commands": {}},
        )
        if action in ("setup", "gather_facts"):
            facts = told.get("ansible_facts", {})
            node["subsets"] = sorted({s for s in facts.get("gather_subset", []) if not s.startswith("!")})
            node["ansible_facts"] = {k: v for k, v in facts.items() if not k.startswith(LEFT_OUT)}
        elif action == "node_state":
            self._state(node["modules"].setdefault("node_state", {}), told)
        elif action in ("node_preflight", "engine_artefact"):
            node["modules"][action] = {key: value for key, value in told.items() if not key.startswith("_")}
        elif action in ("command", "shell") and "cmd" in told:
            said = told["cmd"] if isinstance(told["cmd"], str) else " ".join(told["cmd"])
            node["commands"][said] = {key: told.get(key, "") for key in ("rc", "stdout", "stderr")}

    @staticmethod
    def _state(state: dict[str, Any], told: dict[str, Any]) -> None:
        for part in PARTS:
            state.setdefault(part, {}).update(told.get(part) or {})
        state.update({key: told[key] for key in SINGLE if key in told})
        state["held"] = sorted({*state.get("held", []), *told.get("held", [])})
        if told.get("pci"):
            state["pci"] = told["pci"]

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write every node's recording."""
        if not self.folder:
            self._display.warning("record_nodes: RECORD_NODES names no folder; nothing is written")
            return
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        for name, node in self.nodes.items():
            text = json.dumps(node, indent=1, sort_keys=True, default=str) + "\n"
            (Path(self.folder) / f"{name}.json").write_text(text, encoding="utf-8")
