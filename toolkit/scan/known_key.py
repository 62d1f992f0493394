"""A host key that is not known ends the connection before anybody logs in."""

from __future__ import annotations

import base64
import hashlib
import shlex
from pathlib import Path
from typing import Any

import paramiko


class Unknown(Exception):
    """Raised with the key."""

    def __init__(self, key: Any) -> None:
        """Of a key that no file has."""
        super().__init__()
        self.key = key


class _Ask(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko carries no types
    """Ends the connection where the host key is not known."""

    def missing_host_key(self, client: object, hostname: str, key: Any) -> None:
        """Hand the key over."""
        raise Unknown(key)


def policy() -> Any:
    """For `SSHClient.set_missing_host_key_policy`."""
    return _Ask()


def fingerprint(key: Any) -> str:
    """As `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(base64.b64decode(key.get_base64())).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def known_as(address: str, port: int) -> str:
    """What a machine is called in known_hosts."""
    return address if port == 22 else f"[{address}]:{port}"


def wrong_key(known_hosts: Path, address: str, port: int, why: str) -> str:
    """What is said of a machine that shows another host key; why: what explains it, such as `reinstalled`."""
    remove = shlex.join(["ssh-keygen", "-f", str(known_hosts), "-R", known_as(address, port)])
    return f"its host key is not the known one, so nothing was sent; if it was {why}: {remove}"
