"""Folders for sockets of ssh, whose paths have to be short: ours, and Ansible's where the home has a long path."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from validation.base.temporary import Room

MAX_CONTROL_FOLDER = 60  # a socket's path holds about 104 bytes, and ssh adds 17 while it binds
FOLDER_OF_ANSIBLE = "ANSIBLE_SSH_CONTROL_PATH_DIR"
_LONGEST_OF_ANSIBLE = 79  # of a socket's 107 bytes (unix(7)) Ansible's name takes 11, and ssh adds 17 while it binds


def sockets(kind: str) -> Room:
    """A folder for sockets, whose paths have to be short."""
    base = tempfile.gettempdir()
    return Room(kind, Path(base if len(base) < MAX_CONTROL_FOLDER else "/tmp"))  # noqa: S108


@contextlib.contextmanager
def for_ansible() -> Iterator[dict[str, str]]:
    """Where Ansible's ssh keeps its sockets, as a variable: nothing, unless the home has so long a path that the folder
    of ansible.cfg in it is too long for a socket. What the caller chose is kept."""
    usual = os.fsencode(Path("~/.ansible/cp").expanduser())
    if len(usual) <= _LONGEST_OF_ANSIBLE or {"ANSIBLE_CONFIG", FOLDER_OF_ANSIBLE} & set(os.environ):
        yield {}
        return
    short = sockets("eai-ansible")
    try:
        yield {FOLDER_OF_ANSIBLE: str(short.path)}
    finally:
        short.close()
