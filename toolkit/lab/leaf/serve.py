"""A lab's switch, as one process: `python -m toolkit.lab.leaf.serve NETNS FOLDER`, inside that namespace.

lldpd announces the ports; an ssh server prints the running configuration, and refuses every other command as a switch
does. Both follow the files of the folder.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko

from toolkit.lab.leaf import leaf
from toolkit.lab.network import MANAGEMENT

SHOWS = "show running-configuration | no-more"
COMMANDS = (f'sonic-cli -c "{SHOWS}"', SHOWS)
REFUSAL = "% Error: Invalid input detected\n"
SOCKET, SETTINGS = "lldpd.socket", "lldpd.conf"
BEGIN_S = 30.0
LLDPCLI = ("setpriv", "--no-new-privs", "lldpcli")
"""Debian's lldpcli becomes user _lldpd, who can't reach root's own folders; lldpd starts it, too."""
_ALONE = (
    "setpriv",
    "--no-new-privs",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_FOLDERS = (
    "mount -t sysfs -o ro sysfs /sys && mount -t tmpfs tmpfs /run && mkdir /run/lldpd && mount -t tmpfs tmpfs "
    '/etc/lldpd.d && cp "$1" /etc/lldpd.d/ && lldpd -d -u "$2" -I "f-*"; exit $?'
)
"""lldpd's folders are its own, apart from those of a lldpd of this machine. The shell stays, as the first process of
its namespace: lldpd gives up the signal that it would get when this process ends."""


def port_settings(cables: Mapping[str, str]) -> list[list[str]]:
    """lldpcli's words that give each cable's end the name of the switch port that it is in; "": of another switch."""
    words = []
    for end, port in sorted(cables.items()):
        words.append(["configure", "ports", end, "lldp", "status", "rx-and-tx" if port else "disabled"])
        if port:
            words.append(["configure", "ports", end, "lldp", "portidsubtype", "local", port, "description", port])
    return words


class Announced:
    """lldpd, and which cable is in which port."""

    def __init__(self, folder: Path) -> None:
        """Start it; it does not send before it has its settings."""
        self.folder = folder
        cables = json.loads((folder / leaf.PLACE).read_text())["cables"]
        begin = [
            ["configure", "system", "hostname", leaf.NAME],
            ["configure", "system", "chassisid", leaf.NAME],
            ["configure", "lldp", "tx-interval", str(leaf.SENDS_S)],
            *port_settings(cables),
        ]
        (folder / SETTINGS).write_text("".join(" ".join(words) + "\n" for words in begin))
        self.written_ns = (folder / leaf.PLACE).stat().st_mtime_ns
        words = ["sh", "-c", _FOLDERS, "sh", str(folder / SETTINGS), str(folder / SOCKET)]
        self.process = subprocess.Popen([*_ALONE, *words], stdin=subprocess.DEVNULL)

    def look(self) -> None:
        """Follow the file."""
        path = self.folder / leaf.PLACE
        written = path.stat().st_mtime_ns
        if written == self.written_ns:
            return
        for words in port_settings(json.loads(path.read_text())["cables"]):
            subprocess.run([*LLDPCLI, "-u", str(self.folder / SOCKET), *words], check=True, capture_output=True)
        self.written_ns = written


class _Login(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko carries no types
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check_auth_password(self, username: str, password: str) -> int:
        fine = username == leaf.USER and password == (self.folder / leaf.PASSWORD).read_text()
        return int(paramiko.AUTH_SUCCESSFUL if fine else paramiko.AUTH_FAILED)

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        fine = kind == "session"
        return int(paramiko.OPEN_SUCCEEDED if fine else paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        # An answer that is sent before the request is confirmed is lost.
        threading.Timer(0.05, self._answer, (channel, command.decode("utf-8", "replace"))).start()
        return True

    def _answer(self, channel: Any, command: str) -> None:
        fine = command in COMMANDS
        text = (self.folder / leaf.CONFIGURATION).read_text() if fine else REFUSAL
        with suppress(OSError):
            channel.sendall(text.encode())
            channel.send_exit_status(0 if fine else 1)
            channel.close()


def answer(folder: Path, listening: socket.socket) -> None:
    """Let in everybody who has the password, until the socket is closed."""
    key = paramiko.ECDSAKey.from_private_key_file(str(folder / leaf.KEY))
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            with suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=_Login(folder), event=threading.Event())


def main(folder: Path) -> None:
    """Serve until this process is ended."""
    where = json.loads((folder / leaf.PLACE).read_text())["address"]
    subprocess.run(["ip", "addr", "replace", f"{where}/32", "dev", MANAGEMENT], check=True)
    announced = Announced(folder)
    until = time.monotonic() + BEGIN_S
    while not (folder / SOCKET).exists():
        if announced.process.poll() is not None or time.monotonic() > until:
            sys.exit(f"lldpd did not start within {BEGIN_S:.0f} s (exit status {announced.process.poll()})")
        time.sleep(0.05)
    listening = socket.create_server((where, leaf.PORT), backlog=16)
    threading.Thread(target=answer, args=(folder, listening), daemon=True).start()
    while announced.process.poll() is None:
        announced.look()
        time.sleep(leaf.LOOK_S)
    sys.exit("lldpd has ended")


if __name__ == "__main__":
    main(Path(sys.argv[2]))
