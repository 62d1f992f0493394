"""A lease's agent as a process on loopback, with a TCP stand-in for the engine's server."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support import lease_forms
from toolkit.lease import wire
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.instance_record import Instance

REPO = Path(__file__).parents[2]
TOKEN = lease_forms.TOKEN
ENGINE = """#!{python}
import os, signal, socket, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert open(options["--token-file"]).read().strip() == "{token}"
assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0" and options["--memory-limit"] == str(128 << 20)
server = socket.create_server((options["--bind"], int(options["--port"])))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(options["--port-file"], "w").write(options["--port"])
while True:
    server.accept()[0].close()
"""


def in_s(seconds: float, code: wire.EndCode = wire.EndCode.TIME) -> wire.Deadline:
    """As root writes it."""
    return wire.Deadline(time.time() + seconds, time.monotonic() + seconds, code)


def free_port() -> int:
    """One that the kernel gives to no connection by itself, so that it is still free when it is used."""
    while True:
        port = random.randint(10000, 30000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass
class Running:
    process: subprocess.Popen[str]
    instance: Instance
    folder: Path

    @property
    def endpoint(self) -> LeaseEndpoint:
        devices = tuple(replace(device, emulated=True) for device in self.instance.devices)
        owners = replace(self.instance, devices=devices, heartbeat_s=0.2, grace_s=1.0, where="client")
        return LeaseEndpoint.of(owners, TOKEN, "gpu1")

    def ended(self, within_s: float = 8) -> str:
        self.process.wait(within_s)
        return (self.folder / "reason").read_text().strip()

    def due(self, seconds: float, code: wire.EndCode = wire.EndCode.TIME) -> None:
        """It has so long from now, however long it took to start."""
        (self.folder / "deadline").write_text(in_s(seconds, code).text())

    def connect(self) -> tuple[socket.socket, str]:
        sock = socket.create_connection(("127.0.0.1", self.instance.agent_port), timeout=3)
        return sock, wire.nonce_of(sock.makefile().readline().strip())


Start = Callable[..., Running]


@contextlib.contextmanager
def agents(folder: Path) -> Iterator[Start]:
    """Starts agents in this folder, and ends those that run."""
    started: list[Running] = []

    def go(engine: str = ENGINE, **changes: Any) -> Running:
        program = folder / "engine" / "bin" / "elastic-ai-refserver"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(engine.format(python=sys.executable, token=TOKEN))
        program.chmod(0o755)
        deadline = changes.pop("deadline", wire.Deadline())
        told: dict[str, Any] = {
            "port": free_port(),
            "agent_port": free_port(),
            "devices": (LeasedGpu(0, "GPU-0", "Emulated X", 256, 70, 140, 128),),
            "engine_dir": folder / "engine",
            "deadline": deadline.until,
            "deadline_file": folder / "deadline",
            "grace_s": 1.0,
            "first_s": 5.0,
        }
        instance = lease_forms.instance(**(told | changes))
        (folder / "deadline").write_text(deadline.text())
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "instance").write_text(instance.text())
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notified.bind(str(folder / "notify"))
        notified.settimeout(10)
        environment = {
            "CREDENTIALS_DIRECTORY": str(folder),
            "RUNTIME_DIRECTORY": str(folder),
            "NOTIFY_SOCKET": str(folder / "notify"),
            "PATH": os.environ["PATH"],
        }
        code = "import sys; from toolkit.lease.server.agent import main; sys.exit(main())"
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, cwd=REPO, text=True, stderr=subprocess.PIPE
        )
        started.append(Running(process, instance, folder))
        with notified:
            while process.poll() is None:
                try:
                    notified.settimeout(0.2)
                    assert notified.recv(64) == b"READY=1"
                    break
                except TimeoutError:
                    continue
        return started[-1]

    yield go
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()  # it ends its engine; killed, it leaves that to its unit, which is not here
        one.process.wait(10)
        one.process.stderr.close()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
