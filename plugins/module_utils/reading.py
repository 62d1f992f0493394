"""In place of AnsibleModule on the node, for a call that only reads: no code of Ansible is sent or compiled for it.

Whatever is out of the ordinary ends such a call without an answer, and the caller asks the module itself: an argument
of another type than declared, a command that is missing, a fault that the module would report.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, ClassVar, NoReturn

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import PLAIN

TYPES = {"str": str, "path": str, "list": list, "dict": dict, "bool": bool, "float": float}


class Unusual(Exception):
    """Why the module itself has to be asked."""


def checked(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with their defaults. Nothing is converted: Unusual for what Ansible would convert or refuse."""
    if set(given) - set(options):
        raise Unusual(f"no options: {', '.join(sorted(set(given) - set(options)))}")
    params: dict[str, Any] = {}
    for name, option in options.items():
        value = given.get(name)
        if value is None:
            if option.get("required"):
                raise Unusual(f"{name} is required")
            params[name] = option.get("default")
            continue
        kind = option.get("type", "str")
        if kind == "list":
            values = value if isinstance(value, list) else [value, None]
            params[name] = [one(option.get("elements", "raw"), option, element) for element in values]
        else:
            params[name] = one(kind, option, value)
    return params


def one(kind: str, option: dict[str, Any], value: Any) -> Any:
    """One value of a kind of argument."""
    if kind != "raw" and type(value) is not TYPES[kind]:
        raise Unusual(f"{value!r} is no {kind}")
    if kind == "path" and (not value.startswith("/") or "$" in value):
        raise Unusual(f"{value!r} is not a whole path")
    if value not in option.get("choices", [value]):
        raise Unusual(f"{value!r} is no choice")
    return checked(option["options"], value) if kind == "dict" and "options" in option else value


class Reader:
    """What a module that reads needs of AnsibleModule, in check mode always."""

    given: ClassVar[dict[str, Any]] = {}
    """The arguments of the call."""

    check_mode = True

    def __init__(self, argument_spec: dict[str, Any], supports_check_mode: bool = False) -> None:
        """Take the arguments; Unusual for a module that could write in check mode."""
        if not supports_check_mode:
            raise Unusual("the module has no check mode")
        self.params = checked(argument_spec, self.given)

    def run_command(self, words: list[str]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command that reads."""
        environment = {**os.environ, **PLAIN}
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, env=environment, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def exit_json(self, **answer: Any) -> NoReturn:
        """Print the answer, and end."""
        print(json.dumps(answer))
        raise SystemExit(0)

    def fail_json(self, msg: str) -> NoReturn:
        """Leave it to the module to say."""
        raise Unusual(msg)

    def warn(self, warning: str) -> NoReturn:
        """Leave it to the module to say."""
        raise Unusual(warning)
