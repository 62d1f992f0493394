"""Users of this machine, as a job of theirs needs them: Slurm starts nothing for a number that has no name here."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

NSSWITCH = Path("/etc/nsswitch.conf")


def _by_slurm() -> bool:
    """Whether Slurm itself names the users of running jobs (its module for NSS): before a job starts it names nobody,
    so that nothing can be told then."""
    try:
        text = NSSWITCH.read_text()
    except OSError:
        return False
    return re.search(r"^[ \t]*passwd:[^#\n]*\bslurm\b", text, re.MULTILINE) is not None


def _short(name: str) -> str:
    """A name without its domain, which directory services write in several ways."""
    return name.split("@")[0].rsplit("\\")[-1].casefold()


def problem(uid: int, name: str, node: str) -> str:
    """Why no job of this user can start on this machine, with the cure; "" where it can, or where that cannot be told.

    A number that is another user's here would give that user what is this one's: the token of his lease, his files.
    """
    if _by_slurm():
        return ""
    named = name != f"uid {uid}"
    cure = "create it with the same number on all machines of the pool, or see to their directory service"
    try:
        here = pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{f'user {name} (uid {uid})' if named else name} is not known on {node} (getent passwd {uid}): {cure}"
    if named and _short(here) != _short(name):
        return f"user {name} has uid {uid}, which on {node} is {here}: {cure}"
    return ""
