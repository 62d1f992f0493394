"""An inventory as Ansible reads it: how the program `read_inventory.py` is started, and its answer.

That program runs in the Python that has ansible-core and imports nothing of ours.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

READER = Path(__file__).with_name("read_inventory.py")
#: Instead of names of variables: all that a host has, what cannot be resolved as it stands there.
ALL = "*"
#: How the program's answer begins. A plugin or a lookup of the site may print something before it.
_ANSWER = '{"groups": '


def python_of_ansible() -> str | None:
    """The Python that has ansible-core: this one, else that of the ansible-inventory on PATH; None where none has."""
    if find_spec("ansible") is not None:
        return sys.executable
    tool = shutil.which("ansible-inventory")
    if tool is not None:
        try:
            with Path(tool).open(encoding="utf-8", errors="replace") as file:
                words = shlex.split(file.readline().removeprefix("#!"))
        except (OSError, ValueError):
            words = []
        if words and Path(words[-1]).name.startswith("python") and shutil.which(words[-1]):
            return words[-1]
    return None


def command(python: str, inventory: Path, variables: Iterable[str]) -> list[str]:
    """What prints how Ansible reads an inventory (folder or file), of its hosts' variables those named or `ALL`."""
    return [python, str(READER), json.dumps(sorted(variables)), "-i", str(inventory)]


def answer(printed: str) -> str | None:
    """The JSON document in what the program printed; None where there is none."""
    return next((line for line in reversed(printed.splitlines()) if line.startswith(_ANSWER)), None)
