"""What a service without root asks the helper."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.login import MOST_BYTES, SOCKET

ANSWER_S = 150.0
"""A wrong password takes PAM seconds; Slurm may take a minute for a lease."""


class LoginError(Exception):
    """The helper does not answer, or answers what cannot be used."""


@dataclass(frozen=True)
class Checked:
    """A password that was checked. ticket: "" where it was wrong; wait_s: how long to wait where it was not tried."""

    ticket: str
    wait_s: float = 0.0


@dataclass(frozen=True)
class Done:
    """What was done as a user: `words` are the toolkit's own, an error where `right` is false."""

    right: bool
    words: str


def check_password(user: str, password: str, socket_path: Path = SOCKET) -> Checked:
    """Whether the password is the user's. LoginError without an answer. Blocks for seconds."""
    answer = _ask(socket_path, {"do": "password", "user": user, "password": password})
    ticket, wait_s = answer.get("ticket", ""), answer.get("wait_s", 0.0)
    if not isinstance(ticket, str) or not isinstance(wait_s, (int, float)):
        raise LoginError("the helper of logins answered what cannot be used")
    return Checked(ticket, float(wait_s))


def release(ticket: str, lease: int, socket_path: Path = SOCKET) -> Done:
    """Give a lease back as the user of the ticket. LoginError without an answer."""
    return _done(_ask(socket_path, {"do": "release", "ticket": ticket, "lease": lease}))


def extend(ticket: str, lease: int, minutes: int, socket_path: Path = SOCKET) -> Done:
    """Let a lease go on longer as the user of the ticket. LoginError without an answer."""
    return _done(_ask(socket_path, {"do": "extend", "ticket": ticket, "lease": lease, "minutes": minutes}))


def _done(answer: Mapping[str, Any]) -> Done:
    words = answer.get("words", "")
    if not isinstance(words, str):
        raise LoginError("the helper of logins answered what cannot be used")
    return Done(answer.get("right") is True, words)


def _ask(socket_path: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    line = json.dumps(question).encode() + b"\n"
    if len(line) > MOST_BYTES:
        raise LoginError(f"the question has {len(line)} bytes, {MOST_BYTES} are the most")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            there.settimeout(ANSWER_S)
            there.connect(str(socket_path))
            there.sendall(line)
            heard = b""
            while b"\n" not in heard and len(heard) <= MOST_BYTES:
                part = there.recv(4096)
                if not part:
                    break
                heard += part
    except OSError as fault:
        raise LoginError(f"{socket_path}: {fault.strerror or fault}; is elastic-ai-login.socket active?") from None
    try:
        answer = json.loads(heard)
    except (ValueError, RecursionError):
        raise LoginError(f"{socket_path}: the helper of logins gave no answer; its journal says why") from None
    if not isinstance(answer, dict):
        raise LoginError("the helper of logins answered what cannot be used")
    return answer
