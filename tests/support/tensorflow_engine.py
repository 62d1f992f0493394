"""The engine `tensorflow` for tests: built once, its server started as a lease's adapter starts it, and programs run as
its client's adapter runs them. `ELASTIC_AI_TENSORFLOW_PYTHON` names a Python that has TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolkit.engine.tensorflow_build import RELEASES, build_folder
from toolkit.lease.engines import EngineStart, LeasedGpu, Server, tensorflow

BUILD = Path(__file__).parents[2] / "build"
TOKEN, START_S = "t" * 32, 120
#: A stand-in of TensorFlow: its server does what a line says, with no more leave than it has.
STUB = """
import os, socket, threading
__version__ = "2.21.0"
class _Proto:
    def __init__(self): self.device_count = {}
class compat:
    class v1:
        ConfigProto = _Proto
def _does(word, value):
    if word == "read": return open(value).read()
    if word == "write": open(value, "w").write("x"); return "written"
    if word == "list": return " ".join(os.listdir(value))
    if word == "tcp": socket.create_connection(value.split(":"), timeout=3); return "connected"
    if word == "take": globals().setdefault("held", []).append(bytearray(int(value))); return "taken"
    if word == "pid": return str(os.getpid())
    if word == "environ": return repr(dict(os.environ))
    if word == "kill": os.kill(int(value), 15); return "killed"
    if word == "die": os.abort()
    if word == "back":
        sock = socket.create_connection(("127.84.70.2", 1)); sock.sendall(value.encode()); return sock.recv(99).decode()
    return word
def _serve(sock):
    with sock, sock.makefile("rw") as file:
        for line in file:
            word, _, value = line.strip().partition(" ")
            try: said = _does(word, value)
            except (OSError, MemoryError) as fault: said = type(fault).__name__
            file.write(repr(said) + chr(10)); file.flush()
class distribute:
    class Server:
        target = "grpc://localhost"
        def __init__(self, *words, **named):
            self.listener = socket.create_server(("0.0.0.0", 1))
            threading.Thread(target=self.run, daemon=True).start()
        def run(self):
            while True: threading.Thread(target=_serve, args=(self.listener.accept()[0],), daemon=True).start()
"""


def real_python() -> Path:
    """A Python that has TensorFlow: the one that is named, or one with the wheel for processors, made once."""
    if given := os.environ.get("ELASTIC_AI_TENSORFLOW_PYTHON"):
        return Path(given)
    folder = BUILD / "tensorflow-env"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
        subprocess.run([*pip, "install", "--quiet", f"tensorflow-cpu=={RELEASES[-1]}.*"], check=True)
        (folder / "whole").touch()
    return folder / "bin/python"


def stub_python(folder: Path) -> Path:
    """A Python that has the stand-in."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    package = next(folder.glob("lib/python3*/site-packages")) / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(STUB)
    return folder / "bin/python"


def installed(root: Path, python: Path) -> Path:
    """The engine as the roles install it."""
    build_folder(root / "current")
    (root / "server.json").write_text(json.dumps({"python": str(python)}))
    return root / "current"


@dataclass
class Running:
    """A server. home: where its sessions have their folders."""

    engine_dir: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    emulated: bool = True

    @property
    def home(self) -> Path:
        """Of the unit."""
        return self.folder / "home"

    def events(self, name: str) -> list[dict[str, object]]:
        """Of that kind, which it told."""
        lines = (self.folder / "log").read_text().splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        return [one for one in told if one["event"] == name]

    def environment(self, folder: Path, token: str = TOKEN) -> dict[str, str]:
        """Of a program with this lease; its token lies in the folder, which is made."""
        folder.mkdir()
        told = tensorflow.client(self.engine_dir, [Server("127.0.0.1", self.port, token, 1)], folder)
        gpus = json.dumps([{"name": "Emulated X", "capability": "9.0", "emulated": self.emulated}])
        return {**os.environ, **told, "ELASTIC_AI_GPUS": gpus, "TF_CPP_MIN_LOG_LEVEL": "2"}

    def run(self, program: Sequence[str], folder: Path, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """A program of this lease."""
        return subprocess.run(
            program, env=self.environment(folder), capture_output=True, text=True, check=False, timeout=timeout_s
        )


@contextmanager
def server(engine_dir: Path, folder: Path, limit_mib: int | None = None) -> Iterator[Running]:
    """It listens."""
    folder.mkdir()
    (folder / "home").mkdir()
    token, port_file = folder / "token", folder / "port"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    gpus = (LeasedGpu(0, "GPU-0", "Emulated X", 8192, 1, 2 if limit_mib else 1, limit_mib, emulated=True),)
    start = EngineStart(engine_dir, "r1", "127.0.0.1", 0, port_file, token, ("127.0.0.1",), gpus)
    command = tensorflow.command(start)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), **command.environment}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command.argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not port_file.exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Running(engine_dir, folder, int(port_file.read_text()), process)
    finally:
        process.terminate()
        process.wait(30)
