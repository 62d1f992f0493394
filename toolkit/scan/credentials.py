"""Passwords for a first login: asked for, from the environment or from a file; never an argument."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from toolkit.errors import UsageFault

VARIABLE = "TOOLKIT_SSH_PASSWORD"


def password(ask: bool, file: Path | None) -> str | None:
    """The password, None where keys are to be used. A file must be its owner's alone; its first line counts."""
    if ask and file is not None:
        raise UsageFault("--ask-password and --password-file: choose one")
    if ask:
        asked: str = click.prompt("ssh password", hide_input=True, err=True)
        return asked
    if file is None:
        return os.environ.get(VARIABLE) or None
    try:
        with file.open(encoding="utf-8") as handle:
            if stat.S_IMODE(os.fstat(handle.fileno()).st_mode) & 0o077:
                raise UsageFault(f"{file}: others may read it; chmod 600 {file}")
            line = handle.readline().rstrip("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageFault(f"{file}: {getattr(fault, 'strerror', None) or 'not UTF-8 text'}") from None
    if not line:
        raise UsageFault(f"{file}: its first line is empty; it holds the password")
    return line
