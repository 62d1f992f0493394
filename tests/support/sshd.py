"""A real sshd of the tests' own on loopback addresses."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
MOST = 16  # addresses that one sshd listens at (MAX_LISTEN_SOCKS)
NEEDED = [
    pytest.mark.skipif(SSHD is None, reason="sshd is not installed here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: an sshd that lets root in"),
]


def keygen(path: Path) -> Path:
    """A pair of keys without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def host_line(folder: Path, names: Sequence[str]) -> str:
    """A line of known_hosts: these names have the server's host key."""
    known = (folder / "host.pub").read_text().split(maxsplit=2)[:2]
    return f"{','.join(names)} {' '.join(known)}\n"


@contextlib.contextmanager
def serving(folder: Path, port: int, addresses: Sequence[str], more: str = "") -> Iterator[None]:
    """Serve root at `addresses`, who has the key `folder`/user; the host key is `folder`/host. `more`: settings."""
    host, user = keygen(folder / "host"), keygen(folder / "user")
    (folder / "authorized_keys").write_text(user.with_suffix(".pub").read_text())
    Path("/run/sshd").mkdir(exist_ok=True)
    servers = []
    try:
        for first in range(0, len(addresses), MOST):
            listen = "".join(f"ListenAddress {address}\n" for address in addresses[first : first + MOST])
            config = folder / f"config{first}"
            config.write_text(
                f"Port {port}\n{listen}HostKey {host}\nAuthorizedKeysFile {folder / 'authorized_keys'}\nPidFile none\n"
                f"StrictModes no\nPermitRootLogin yes\nKbdInteractiveAuthentication no\n{more}"
            )
            servers.append(subprocess.Popen([str(SSHD), "-D", "-f", str(config), "-E", str(folder / "log")]))
        time.sleep(0.5)
        assert {server.poll() for server in servers} == {None}, (folder / "log").read_text()
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)
