"""This process's session: the forwarder beside it, and what TensorFlow is told of its server."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from elastic_ai_tensorflow.lease import CLIENT_ADDRESS, PORT, SERVER_ADDRESS, WIRE, Lease, LeaseFault, release


class Session:
    """One for each process. `begin` makes it."""

    def __init__(self, lease: Lease) -> None:
        """Nothing is asked of anybody yet."""
        self.lease = lease
        self.version = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._made_by = 0

    def begin(self, version: str) -> None:
        """Have a server of the lease's, with this version of TensorFlow here. LeaseFault with a sentence where there is
        none."""
        if self._process is not None:
            if self._made_by != os.getpid():
                raise LeaseFault(
                    "this process was forked by one that uses the lease's GPUs by TensorFlow already, as TensorFlow "
                    "itself does not allow; start processes by spawn, or use TensorFlow only after the fork"
                )
            return
        base = os.environ.get("XDG_RUNTIME_DIR", "")
        folder = Path(tempfile.mkdtemp(prefix="elastic-ai-", dir=base if Path(base).is_absolute() else None))
        atexit.register(_remove, folder, os.getpid())
        self._turn_inward(folder)
        given = {
            "address": self.lease.address, "port": self.lease.port, "token": self.lease.token(), "wire": WIRE,
            "release": release(), "tensorflow": version, "socket": str(folder / "server"),
            "back": str(folder / "client"),
        }  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("forwarder.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._made_by = os.getpid()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(given).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            answer = {"refused": f"the process beside the program ended (exit {self._process.poll()})"}
        if "refused" in answer:
            self._process = None
            raise LeaseFault(str(answer["refused"]))
        self.version = str(answer["tensorflow"])

    @staticmethod
    def _turn_inward(folder: Path) -> None:
        """TensorFlow's sockets become files of this folder. LeaseFault where they cannot: then this process would
        listen to everybody who reaches this machine."""
        inward = getattr(ctypes.CDLL(None), "elastic_ai_inward", None)
        if inward is None:
            raise LeaseFault(
                "libelastic_ai_inward.so is not loaded (LD_PRELOAD), so TensorFlow would listen to everybody on this "
                "machine's addresses; start the program with `toolkit run`, and leave LD_PRELOAD as it is"
            )
        rules = (("", folder / "client"), (SERVER_ADDRESS, folder / "server"), (CLIENT_ADDRESS, folder / "client"))
        if any(inward(address.encode(), PORT, str(path).encode()) for address, path in rules):
            raise LeaseFault(f"{folder}: its path is too long for a socket; set XDG_RUNTIME_DIR to a shorter one")


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
