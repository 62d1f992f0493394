"""Tickets: who has proved a password, signed with a key that root alone has."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from toolkit.login import TICKET_S

_KEY_BYTES = 32


def key_of(folder: Path) -> bytes:
    """The key of this machine, made at the first question since it started."""
    path = folder / "key"
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    made = folder / f"key.{secrets.token_hex(8)}"
    made.touch(0o600)
    made.write_bytes(secrets.token_bytes(_KEY_BYTES))
    try:
        os.link(made, path)  # the first of two helpers at the same time wins
    except FileExistsError:
        pass
    finally:
        made.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} has {len(key)} bytes and not {_KEY_BYTES}; remove it")
    return key


def _seal(key: bytes, body: str) -> str:
    return hmac.new(key, body.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def mark_of(key: bytes, name: str) -> str:
    """What stands for a name where the name itself must not be written: the same for the same name, and without the key
    nobody finds the name."""
    return _seal(key, f"name:{name}")


def issue(key: bytes, user: str, uid: int, now: float) -> str:
    """A ticket for TICKET_S from `now` (seconds since the machine started)."""
    body = f"{int(now + TICKET_S)}:{uid}:{user}"
    return f"{_seal(key, body)}:{body}"


def holder(key: bytes, ticket: str, now: float) -> tuple[str, int] | None:
    """Name and uid of the user whose ticket it is; None where it is none, or too old."""
    seal, _, body = ticket.partition(":")
    if not hmac.compare_digest(seal.encode("utf-8", "replace"), _seal(key, body).encode()):
        return None
    expires, uid, user = body.split(":", 2)
    return (user, int(uid)) if now < int(expires) else None
