"""Ports of a program on the GPU server, at 127.0.0.1 of this machine, as long as the program runs: `run --port`."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType

from toolkit.lease.client.running import Say
from toolkit.lease.shell.connection import LOOPBACK, Target, ssh_command


class Forward(threading.Thread):
    """An ssh client that runs nothing on the server. Where it ends by itself, that is said, with its reason."""

    def __init__(self, lease: int, ports: Sequence[int], say: Say) -> None:
        """Nothing is started yet."""
        super().__init__(daemon=True, name="ports")
        self._words = ssh_command(Target(lease), [], ports, ["-N", "-T"])
        self._ports, self._say = ", ".join(map(str, ports)), say
        self._ssh: subprocess.Popen[str] | None = None
        self._over = threading.Event()

    def __enter__(self) -> Forward:
        """Start it. Ctrl-C at the terminal is not for it."""
        self._ssh = subprocess.Popen(
            self._words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        self._say(f"port {self._ports} of the server is at {LOOPBACK} on this machine while the program runs")
        self.start()
        return self

    def run(self) -> None:
        """Until it has ended."""
        assert self._ssh is not None
        said = self._ssh.communicate()[1].strip().splitlines()
        if not self._over.is_set():
            self._say(f"port {self._ports} is not forwarded: {(said or ['ssh ended'])[-1]}")

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        assert self._ssh is not None
        self._over.set()
        self._ssh.terminate()
        self.join(10)
