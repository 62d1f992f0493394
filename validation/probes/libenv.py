"""What is set for NCCL and UCX on the node: in their files, in /etc/environment, and in a new login session of a user.

A login session is opened for `nobody` by root, else for the user that this runs as. Its environment begins empty, so
that only what the machine sets is in it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from validation.probes.tool import run_tool

FILES = ("etc/nccl.conf", "etc/ucx/ucx.conf", "etc/environment")
TIMEOUT_S = 10.0
USER = "nobody"
_SETTING = re.compile(r"^\s*(?:export\s+)?((?:NCCL|UCX)_[A-Z0-9_]+)\s*=\s*(.*?)\s*$")


def settings(text: str, where: str) -> list[dict[str, str]]:
    """Settings of NCCL and UCX in lines of NAME=VALUE, comments and other names left out."""
    found = filter(None, map(_SETTING.match, text.splitlines()))
    return [{"name": m[1], "value": m[2].strip("\"'"), "where": where} for m in found]


def session() -> tuple[str, str]:
    """The environment of a new login session, one NAME=VALUE on each line, or why it could not be had."""
    login = ["env", "-i", "HOME=/", f"PATH={os.defpath}", "sh", "-lc", "env"]
    ran = run_tool([*(("runuser", "-u", USER, "--") if os.geteuid() == 0 else ()), *login], timeout_s=TIMEOUT_S)
    return (ran.stdout, "") if ran.returncode == 0 else ("", f"login session: {ran.failure}")


def collect(root: Path = Path("/")) -> dict[str, Any]:
    """All of it, as LibraryEnv."""
    found: list[dict[str, str]] = []
    unread: list[str] = []
    for name in FILES:
        try:
            found += settings((root / name).read_text(errors="replace"), f"/{name}")
        except FileNotFoundError:
            continue
        except OSError as fault:
            unread.append(f"/{name}: {fault.strerror or fault}")
    text, why = session()
    found += settings(text, "login session")
    return {"settings": found, "unread": "; ".join([*unread, *filter(None, [why])])}
