"""What the variables of a role come to, as Ansible's own templating has them, the collection's filters with it.

In a process of its own: Ansible's finder of collections has to be there before the first import of one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def role_values(role: str, names: list[str], cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each case the variables of defaults/main.yml and vars/main.yml; a case's own come before those of the role.

    A variable without a value says why: {"error": ...}.
    """
    asked = json.dumps({"role": role, "names": names, "cases": cases})
    done = subprocess.run([sys.executable, __file__], input=asked, capture_output=True, text=True, check=True, cwd=ROOT)
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def _main() -> None:
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.template import Templar

    init_plugin_loader([str(ROOT)])
    asked = json.load(sys.stdin)
    loader = DataLoader()
    variables: dict[str, Any] = {}
    for folder in ("defaults", "vars"):
        file = ROOT / "roles" / asked["role"] / folder / "main.yml"
        variables |= (loader.load_from_file(str(file), trusted_as_template=True) or {}) if file.is_file() else {}

    def value(name: str, case: dict[str, Any]) -> Any:
        try:
            return Templar(loader, {**variables, **case}).template(variables[name])
        except AnsibleError as error:
            return {"error": str(error)}

    json.dump([{name: value(name, case) for name in asked["names"]} for case in asked["cases"]], sys.stdout)


if __name__ == "__main__":
    _main()
