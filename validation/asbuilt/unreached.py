"""Why no command can be run on a node, in the words of its measurements, from what testinfra has of ssh."""

from __future__ import annotations

import getpass
from typing import Any

from testinfra.backend.base import CommandResult  # type: ignore[import-untyped]

from validation.execute.remote import Output
from validation.execute.ssh import explain
from validation.model import SshTarget


def why(result: CommandResult, inventory: str) -> str:
    """Of a command that ssh or sudo refused: one line, without the node's name."""
    output = Output(result.rc, result.stdout_bytes, result.stderr_bytes)
    there: Any = getattr(result.backend, "host", None)
    if not isinstance(getattr(there, "name", None), str):  # no machine that is reached by ssh
        return f"no command can be run on it: {output.last_words or f'exit status {result.rc}'}"
    port, user = int(there.port or 22), there.user or getpass.getuser()
    return explain(SshTarget(host=there.name, port=port, user=user, key_file=None), output, inventory)


def words_of(fault: BaseException, inventory: str) -> str:
    """What an exception says; of one that testinfra raises with what a command gave: why, without Python's form."""
    said = fault.args[0] if fault.args else ""
    if isinstance(said, CommandResult):
        return why(said, inventory)
    text = " ".join(str(fault).split())
    return text if isinstance(fault, ConnectionError) else f"{type(fault).__name__}: {text}".rstrip(": ")
