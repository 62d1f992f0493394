"""Where the project's own files are: those of a checkout, or those that the wheel brings beside its packages.

A checkout has roles, playbooks, stacks and inventories in its own folder, and a link to it by the name under which
Ansible looks for the collection. The wheel has them in a folder of that name. So the name leads to them in both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from validation.base.errors import ToolkitError

#: The folder that has the packages `toolkit` and `validation`.
CODE = Path(__file__).resolve().parents[2]
_NAME = Path("ansible_collections/elastic_ai/toolkit")
#: The folder that has roles, playbooks, plugins, stacks, inventories, engine, ansible.cfg and pyproject.toml.
ROOT = (CODE / _NAME).resolve()
#: Written by setup.py into the wheel: {"commit": ..., "modified": ...} of the tree that it was built from.
BUILT = "built.json"
_GIT_TIMEOUT_S = 20


class IncompleteError(ToolkitError):
    """A file of the project is not where this copy of the toolkit has to have it."""


def python_words(module: str) -> list[str]:
    """How this Python runs a module of these packages. `-m` would look for it in the current folder first, whoever
    filled that, and the lab does so as root.
    """
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"import sys; sys.path[0] = {str(CODE)!r}; {run}"]


def is_checkout() -> bool:
    """Whether the files are those of a source tree; else they came with the wheel."""
    return ROOT == CODE


def file(name: str, root: Path = ROOT) -> Path:
    """The path of a file or folder that the toolkit cannot work without, as `site.yml`; IncompleteError."""
    path = root / name
    if not path.exists():
        raise IncompleteError(
            f"{path}: no such file, so this copy of the toolkit is not whole; install its wheel again, or run toolkit "
            "from a whole checkout"
        )
    return path


def commit() -> tuple[str, bool | None]:
    """The commit of these files, and whether some are not as committed; ("", None) where nobody can tell."""
    return _of_checkout(CODE) if is_checkout() else _of_wheel(ROOT / BUILT)


def _of_wheel(built: Path) -> tuple[str, bool | None]:
    try:
        said = json.loads(built.read_text(encoding="utf-8"))
        return str(said["commit"]), said["modified"]
    except (OSError, ValueError, KeyError, TypeError):
        return "", None


def _of_checkout(root: Path) -> tuple[str, bool | None]:
    said = []
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            ran = subprocess.run(
                ["git", "-C", str(root), *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=_GIT_TIMEOUT_S,
                env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            )
        except (OSError, subprocess.TimeoutExpired):
            return "", None
        if ran.returncode != 0:
            return "", None
        said.append(ran.stdout.strip())
    return said[0], bool(said[1])
