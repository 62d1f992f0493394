"""The inventory as `ansible-inventory --list` has it, with every template resolved that can be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from validation import ansible_side


def resolved(inventory: Path) -> dict[str, Any] | None:
    """Groups and `_meta.hostvars`; a template that only a run of Ansible can resolve (of facts) stands as it is.

    None where Ansible cannot read the inventory: testinfra asks it then, and has its words.
    """
    python = ansible_side.python_of_ansible()
    if python is None:
        return None
    asked = ansible_side.command(python, inventory, [ansible_side.ALL])
    ran = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    answer = ansible_side.answer(ran.stdout) if ran.returncode == 0 else None
    if answer is None:
        return None
    said = json.loads(answer)
    return {**said["groups"], "_meta": {"hostvars": {name: host["values"] for name, host in said["hosts"].items()}}}
