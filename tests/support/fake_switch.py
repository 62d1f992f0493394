"""A switch that answers over ssh, by paramiko: what its command line prints is given, and what it was asked is kept."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko

USER, PASSWORD = "admin", "pw-of-the-switch"


class FakeSwitch:
    """Serves until `close`. `answers`: command -> output; a command without one is refused as the system does.

    silent: takes a command and never answers.
    """

    def __init__(self, answers: dict[str, str], refusal: str = "% Error: Invalid input detected", silent: bool = False):
        self.answers, self.refusal, self.silent = answers, refusal, silent
        self.asked: list[str] = []
        self.logins: list[str] = []
        self.key = paramiko.ECDSAKey.generate()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self.listening.getsockname()[1])
        self.open: list[Any] = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def known(self, file: Path) -> Path:
        """Add its host key to a known_hosts."""
        with file.open("a", encoding="utf-8") as out:
            out.write(f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n")
        return file

    def close(self) -> None:
        """End every connection."""
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)  # close alone leaves it to the thread that accepts
        self.listening.close()
        self.thread.join(10)
        for transport in self.open:
            transport.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                transport = paramiko.Transport(connection)
                self.open.append(transport)
                transport.add_server_key(self.key)
                with suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=_Server(self), event=threading.Event())

    def answer(self, channel: Any, command: str) -> None:
        """What the command line prints."""
        self.asked.append(command)
        if self.silent:
            return
        found = self.answers.get(command)
        with suppress(OSError):
            channel.sendall((found if found is not None else f"{self.refusal}\n").encode())
            channel.send_exit_status(0 if found is not None else 1)
            channel.close()


class _Server(paramiko.ServerInterface):
    def __init__(self, switch: FakeSwitch) -> None:
        self.switch = switch

    def check_auth_password(self, username: str, password: str) -> int:
        self.switch.logins.append(username)
        return paramiko.AUTH_SUCCESSFUL if (username, password) == (USER, PASSWORD) else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED if kind == "session" else paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        # An answer that is sent before the request is confirmed is lost.
        threading.Timer(0.05, self.switch.answer, (channel, command.decode())).start()
        return True
