"""Asks a node what a module of ours would answer, without Ansible's own code on the node.

Ansible sends its own code with each module, as source, and the node compiles it: more than half of what a module that
only reads costs there (benchmarks/README.md). Here the module's own file runs with the standard library alone, over the
same connection and with the same privileges. Nothing is ever written so: what is to be changed, and all that is out
of the ordinary, is the module's own.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants
from ansible.plugins.action import ActionBase

PLUGINS = Path(__file__).resolve().parents[1]
PREFIX = "ansible_collections.elastic_ai.toolkit.plugins"
READING = f"{PREFIX}.module_utils.reading"

# The last three lines are as in what Ansible sends: whoever reads a module's name and arguments out of one finds them.
PROGRAM = """\
import json, sys, types

def load(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    return module

def answer(module_fqn, params):
    for name, text in {others!r}.items():
        load(name, text)
    basic = sys.modules["ansible.module_utils.basic"] = types.ModuleType("ansible.module_utils.basic")
    basic.AnsibleModule = sys.modules[{reading!r}].Reader
    basic.AnsibleModule.given = json.loads(params)["ANSIBLE_MODULE_ARGS"]
    load(module_fqn, {text!r}).main()

answer(
module_fqn={name!r},
params={params!r},
)
"""


@lru_cache(maxsize=16)
def source(name: str) -> str:
    """The text of one of our files."""
    return (PLUGINS / f"{name}.py").read_text(encoding="utf-8")


def _imported(name: str) -> list[str]:
    """Which module_utils one of our files imports."""
    return re.findall(rf"^from {re.escape(PREFIX)}\.module_utils\.(\w+) import", source(name), re.MULTILINE)


def _after_what_it_needs(name: str, order: list[str]) -> None:
    """Add a module_utils to those that are loaded one after the other, behind all that it imports."""
    for needed in _imported(f"module_utils/{name}") if name not in order else ():
        _after_what_it_needs(needed, order)
    if name not in order:
        order.append(name)


def program(module: str, arguments: dict[str, Any], needs: tuple[str, ...] = ()) -> str:
    """The program that answers for a module; `needs` are module_utils that come first, each behind what it imports.

    TypeError for arguments that are no plain data.
    """
    order = ["plain"]
    for name in (*needs, *_imported(f"modules/{module}")):
        _after_what_it_needs(name, order)
    return PROGRAM.format(
        others={f"{PREFIX}.module_utils.{name}": source(f"module_utils/{name}") for name in (*order, "reading")},
        reading=READING,
        text=source(f"modules/{module}"),
        name=f"{PREFIX}.modules.{module}",
        params=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
    )


def interpreter(action: ActionBase, task_vars: dict[str, Any]) -> str:
    """The node's Python, "" where Ansible has yet to look for it."""
    named = action._templar.template(task_vars.get("ansible_python_interpreter"))
    named = named or constants.config.get_config_value("INTERPRETER_PYTHON")
    if str(named).startswith("auto"):
        named = task_vars.get("ansible_facts", {}).get("discovered_interpreter_python")
    return str(named) if str(named).startswith("/") else ""


def ask(
    action: ActionBase,
    module: str,
    arguments: dict[str, Any],
    task_vars: dict[str, Any],
    needs: tuple[str, ...] = (),
) -> dict[str, Any] | None:
    """What the module would answer in check mode; None where it has to be asked itself.

    A node that cannot be reached is told as ever.
    """
    task, python = action._task, interpreter(action, task_vars)
    if task.async_val or task.delegate_to or not python or not action._is_pipelining_enabled("new"):
        return None
    if action._compute_environment_string():
        return None
    try:
        text = program(module, arguments, needs)
    except TypeError:  # a value that only Ansible's own encoder knows, as one from a vault
        return None
    said = action._low_level_execute_command(f"{python} -IS", in_data=text.encode())
    return answered(said["stdout"]) if said["rc"] == 0 else None


def answered(stdout: str) -> dict[str, Any] | None:
    """The answer among what login files of the node print too, known by its form; None where there is none, or a
    failure, which the module itself has to tell."""
    for line in reversed(stdout.splitlines()):
        with suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict) and isinstance(answer.get("changed"), bool):
                return None if answer.get("failed") else answer
    return None


class Reads(ActionBase):  # type: ignore[misc]
    """The action of a module that only reads: asks in the short way, and else the module."""

    MODULE: ClassVar[str]
    NEEDS: ClassVar[tuple[str, ...]] = ()
    """The module_utils that it imports."""
    ONLY_IN_CHECK_MODE: ClassVar[bool] = False
    """Whether it writes otherwise."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        answer = None
        if self._task.check_mode or not self.ONLY_IN_CHECK_MODE:
            answer = ask(self, self.MODULE, dict(self._task.args), task_vars or {}, self.NEEDS)
        if answer is None:
            answer = self._execute_module(f"elastic_ai.toolkit.{self.MODULE}", task_vars=task_vars)
        result.update(answer)
        return result
