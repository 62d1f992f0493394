"""Whether a Python can serve notebooks, and by what."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass

from toolkit.lease import LeaseError
from toolkit.lease.before.program_needs import ASKS_S
from toolkit.lease.notebook.server import APPS

#: Releases of jupyter_server from this one on keep the token apart from all else.
LEAST = 2
_ASK = r"""
import importlib.util, json, sys
from importlib import metadata
def release(name):
    try:
        return metadata.version(name) if importlib.util.find_spec(name) else ""
    except Exception:
        return ""
print(json.dumps({name: release(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True)
class Python:
    """app: by what it serves notebooks, a key of APPS."""

    path: str
    app: str


def _major(release: str) -> int:
    head = release.partition(".")[0]
    return int(head) if head.isdigit() else 0


def choose(path: str, has: dict[str, str]) -> Python:
    """Of the packages that it has, by name: their releases, "" for none. LeaseError says what is missing."""
    install = f"install them there: {path} -m pip install jupyterlab"
    if _major(has.get("jupyter_server", "")) < LEAST:
        old = f" (jupyter_server {has['jupyter_server']} is older than {LEAST})" if has.get("jupyter_server") else ""
        raise LeaseError(f"{path} has neither JupyterLab nor another notebook server{old}; {install}")
    if not has.get("ipykernel"):
        raise LeaseError(f"{path} has no ipykernel, which runs a notebook's cells; {install}")
    fit = [app for app in APPS if has.get(app) and (app != "notebook" or _major(has[app]) >= 7)]
    return Python(path, fit[0])


def find(name: str = "python3") -> Python:
    """The first Python of that name in PATH. LeaseError where there is none, or it serves no notebooks."""
    path = shutil.which(name)
    if path is None:
        raise LeaseError(f"there is no {name} here, by which notebooks are served")
    names = [*APPS, "ipykernel"]
    try:
        done = subprocess.run(
            [path, "-c", _ASK, *names], capture_output=True, text=True, check=False, timeout=ASKS_S, cwd="/",
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        has = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        raise LeaseError(f"{path} does not report what it has; try: {path} -c 'import jupyter_server'") from None
    return choose(path, has)
