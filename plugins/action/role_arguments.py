"""role_arguments: a role's variables against its meta/argument_specs.yml, on the controller.

Ansible does this by itself before a role, but under the tag `always`: with `--tags dcgm` all other roles' variables
were checked too. A task of the role has the role's tags alone. The specifications are read once, before the first
worker is forked; as a task's arguments Ansible would look for templates in each of their sentences, on each host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.action.validate_argument_spec import ActionModule as Validation

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import late

late.load()

ROLES = Path(__file__).resolve().parents[2] / "roles"
Options = dict[str, Any]


def options_of(role: Path) -> Options:
    """The variables that a role's tasks/main.yml takes."""
    text = (role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    found: Options = yaml_load(text)["argument_specs"]["main"].get("options") or {}
    return found


#: Role -> what it takes, of all roles of the collection.
OPTIONS = {role.name: options_of(role) for role in ROLES.iterdir() if (role / "tasks/main.yml").is_file()}


class ActionModule(Validation):  # type: ignore[misc]
    """Ansible's own validation, with the specification of the role that the task is part of."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its answer: `argument_errors` where a variable is missing, unknown as a choice, or of another type."""
        role = Path(str((task_vars or {})["role_path"])).name
        context = {"type": "role", "name": role, "argument_spec_name": "main", "path": str(ROLES / role)}
        self._task.args = {"argument_spec": OPTIONS[role], "validate_args_context": context}
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.pop("argument_spec_data", None)  # all sentences of the role's page
        return result
