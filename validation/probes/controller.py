"""What the probes share that run on the machine which runs the validation, beside the inventory, and not on a node."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from validation.base.project import ROOT
from validation.base.sockets import for_ansible
from validation.probes.tool import Ran, finish_tool, start_tool

INVENTORY = "ELASTIC_AI_INVENTORY"
"""Variable of the environment that names the inventory: it is no part of a plan, which is of the nodes alone."""
_ALTERING = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "ANSIBLE_LIMIT", "ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS")
"""Variables by which a caller could leave out checks or tasks without a word."""


def inventory() -> str:
    """The inventory's absolute path; ValueError where nobody named one."""
    named = os.environ.get(INVENTORY, "")
    if not named:
        raise ValueError(f"{INVENTORY} does not name the inventory")
    return str(Path(named).resolve())


def environment() -> dict[str, str]:
    """What Ansible's commands and pytest find: themselves on the path, the project's settings, a locale of UTF-8."""
    env = {name: value for name, value in os.environ.items() if name not in _ALTERING}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    if (ROOT / "ansible.cfg").is_file():
        env.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    return {**env, "LC_ALL": "C.UTF-8", "LANGUAGE": "", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}


def run_here(command: Sequence[str], **more: str) -> Ran:
    """Run a command of this Python's environment to its end, in the folder of the caller; `more` is its environment."""
    with for_ansible() as chosen:
        process = start_tool(command, {**environment(), **chosen, **more}, cwd=str(Path.cwd()))
        return finish_tool(command, process)


def host_variable(name: str) -> dict[str, Any]:
    """A variable of each host as Ansible resolves it, vaults included; ValueError, in one sentence, where it cannot.

    What is printed meanwhile stays here: it may be secret.
    """
    reader = ROOT / "validation/ansible_side/read_inventory.py"
    ran = run_here([sys.executable, str(reader), json.dumps([name]), "-i", inventory()])
    lines = [line for line in ran.stdout.splitlines() if line.startswith('{"groups": ')]
    if ran.returncode != 0 or not lines:
        raise ValueError(
            f"Ansible cannot read the inventory (exit status {ran.returncode}); see toolkit validate --dry-run"
        )
    found = {}
    for host, said in json.loads(lines[-1])["hosts"].items():
        if name in said["unresolved"]:
            raise ValueError(f"{host}: Ansible cannot resolve {name}; is ANSIBLE_VAULT_PASSWORD_FILE set?")
        if name in said["values"]:
            found[host] = said["values"][name]
    return found
