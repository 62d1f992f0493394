"""managed_files on the controller: fills in what an entry's template or file holds, then calls the module."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import late, reading

# Ansible imports this file in the process that it forks a worker from for each task, before the first of our files is
# written: what is loaded here, no worker loads again.
late.load()

SOURCES = ("content", "template", "src")


def spread(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The entry of each file: `path` with a trailing slash is the folder of all that `template` or `src` list.

    A file keeps its name there, without the .j2 of a template, and below `relative_to` its folders too.
    """
    below = str(entry.pop("relative_to", ""))
    if not str(entry["path"]).endswith("/"):
        return [entry]
    kind = "template" if "template" in entry else "src"
    named: list[dict[str, Any]] = []
    for source in entry.get(kind) or []:
        name = os.path.relpath(source, below) if below else PurePosixPath(source).name
        named.append({**entry, "path": entry["path"] + name.removesuffix(".j2"), kind: source})
    return named


class Variables(dict[str, Any]):
    """A task's variables for lookup `template`, which adds some of its own to a deep copy: a dict of its own will do.

    A deep copy of all facts and all roles' variables took half of a task with templates (180 to 95 ms of CPU).
    """

    def __deepcopy__(self, _memo: dict[int, Any]) -> dict[str, Any]:
        """Without a copy of what the variables hold."""
        return dict(self)


class ActionModule(ActionBase):
    """Resolves `when`, `template` and `src`. Where a look tells that nothing differs, the module is not called."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        for option in ("directories", "files"):
            if arguments.get(option):
                arguments[option] = [
                    self._resolved(one, task_vars or {})
                    for entry in arguments[option]
                    if boolean(entry.get("when", True), strict=False)
                    for one in spread({key: value for key, value in entry.items() if key != "when"})
                ]
        result.update(self._settled(arguments, task_vars or {}) or self._written(arguments, task_vars))
        return result

    def _settled(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any] | None:
        """The module's answer where it has nothing to do; None where it has, or where that is not known."""
        answer = reading.ask(self, "managed_files", arguments, task_vars, needs=("files",))
        return None if answer is None or answer["changed"] or answer.get("ledger_stale") else answer

    def _written(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            "elastic_ai.toolkit.managed_files", arguments, task_vars=task_vars
        )
        return answer

    def _resolved(self, entry: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in SOURCES if name in entry]
        if len(given) > 1:
            raise AnsibleActionFail(f"{entry['path']}: {' and '.join(given)} exclude each other")
        template, source, names = (entry.pop(key, None) for key in ("template", "src", "vars"))
        if entry.get("state") == "absent":
            return entry
        if template is not None:
            entry["content"] = self._rendered(template, names or {}, task_vars)
        if source is not None:
            found = self._loader.get_real_file(self._find_needle("files", source))
            entry["content"] = Path(found).read_text(encoding="utf-8")
        return entry

    def _rendered(self, template: str, names: dict[str, Any], task_vars: dict[str, Any]) -> str:
        """A template's text, with `names` beside the variables of the task."""
        lookup = self._shared_loader_obj.lookup_loader.get(
            "ansible.builtin.template", loader=self._loader, templar=self._templar
        )
        texts: list[str] = lookup.run([template], variables=Variables(task_vars), template_vars=names)
        return texts[0]
