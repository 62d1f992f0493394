"""What `toolkit jupyter` is asked for, checked before any GPU is."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.lease import LeaseError
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.shell.connection import LOOPBACK, refuse_taken

#: Jupyter's own usual port, and how many after it are tried where the user names none.
FIRST_PORT, MORE_PORTS = 8888, 50


@dataclass(frozen=True)
class NotebookRequest:
    """folder: in which notebooks are. port: of 127.0.0.1, None for the next that is free. detach: it goes on alone
    (package kept)."""

    wish: LeaseWish = field(default_factory=LeaseWish)
    folder: str | None = None
    port: int | None = None
    where: Literal["auto", "client", "server"] = "auto"
    detach: bool = False

    @classmethod
    def checked(cls, **options: Any) -> NotebookRequest:
        """The request that a command's options are. LeaseError where it cannot be met here."""
        request = cls(wish=LeaseWish.taken_from(options), **options)
        request.wish.check()
        if request.port is not None:
            refuse_taken([request.port])
        if request.where == "server" and request.wish.engine:
            raise LeaseError("--engine is for a notebook server here; on the GPU server (--where server) there is none")
        return request

    def own_folder(self) -> Path:
        """The folder, on this machine. LeaseError where notebooks cannot be opened and saved in it."""
        path = Path(self.folder or ".").resolve()
        if not path.is_dir():
            raise LeaseError(f"--folder {self.folder}: {'not a folder' if path.exists() else 'no such folder'} here")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise LeaseError(f"{path}: you cannot write there, so no notebook could be saved; give another --folder")
        return path


def free_port() -> int:
    """The first of the usual ports that nobody has. LeaseError where there is none."""
    for port in range(FIRST_PORT, FIRST_PORT + MORE_PORTS + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise LeaseError(f"ports {FIRST_PORT} to {FIRST_PORT + MORE_PORTS} are all in use here; name a free one by --port")


def new_token() -> str:
    """For one notebook server."""
    return secrets.token_hex(24)


def browser(detach: bool) -> bool:
    """Whether Jupyter opens one: where the user has a screen here."""
    return not detach and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
