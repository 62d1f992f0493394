"""The three programs of module toolkit.lease.notebook.hub, called by sudo as a notebooks' user. It needs nothing of
JupyterHub's."""

from __future__ import annotations

import asyncio
import json
import pwd
import re
from pathlib import Path
from typing import Any

PROGRAMS = Path("/usr/lib/elastic-ai/jupyterhub/bin")
SUDO = "/usr/bin/sudo"
#: Of a program that does not answer. The programs end themselves sooner (ANSWER_S of module hub); sudo takes the rest.
ANSWER_S = 150.0
USER = r"[a-z_][a-z0-9_.-]{0,31}"


class NotStarted(Exception):
    """With a sentence that JupyterHub shows the user."""

    def __init__(self, words: str) -> None:
        """words: for the user."""
        super().__init__(words)
        self.jupyterhub_message = words


async def call(user: str, program: str, *words: str, text: str = "") -> dict[str, Any]:
    """What one of the three programs answers, as that user. NotStarted with its sentence.

    One that does not answer is not killed: sudo is root's, and the hub is not.
    """
    try:
        known = re.fullmatch(USER, user) is not None and pwd.getpwnam(user).pw_uid != 0
    except KeyError:
        known = False
    if not known:
        raise NotStarted("no user of this machine has that name")
    process = await asyncio.create_subprocess_exec(
        SUDO, "-n", "-u", user, "--", str(PROGRAMS / program), *words, cwd="/",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(text.encode()), ANSWER_S)
    except asyncio.TimeoutError:
        raise NotStarted("the pool does not answer; try again in a minute") from None
    if process.returncode != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        raise NotStarted(lines[-1][:500] if lines else "the notebook server was not started")
    answer: dict[str, Any] = json.loads(out)
    return answer
