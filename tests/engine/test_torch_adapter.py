"""What a lease's adapter starts and tells is what the engine `torch` takes: a real server and a real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import torch_engine, torch_env
from toolkit.lease.before.program_needs import ask_python, needs_of
from toolkit.lease.engines import EngineStart, LeasedGpu, Server, installed, torch

TOKEN = "t" * 32
PROGRAM = """
import torch
print(torch.cuda.device_count(), [(torch.ones(3, device=f"cuda:{i}") * 2).sum().item() for i in range(2)])
try:
    torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("full")
"""


@pytest.fixture
def engine_dir(tmp_path: Path) -> Path:
    """The engine as the roles install it."""
    root = tmp_path / "torch"
    root.mkdir()
    (root / "current").symlink_to(torch_engine.built())
    (root / "server.json").write_text(json.dumps({"python": str(torch_env.python())}))
    return root / "current"


def test_a_program_has_the_devices_of_a_lease_and_its_part_of_their_memory(engine_dir: Path, tmp_path: Path) -> None:
    token, port_file = tmp_path / "token", tmp_path / "port"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    gpus = tuple(LeasedGpu(i, f"GPU-{i}", "Emulated X", 256, 1, 2, 128, emulated=True) for i in range(2))
    start = EngineStart(engine_dir, "r1", "127.0.0.1", 0, port_file, token, ("127.0.0.1",), gpus)
    command = torch.command(start)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **command.environment}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command.argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + torch_engine.START_S
        while not port_file.exists():
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        folder = tmp_path / "client"
        folder.mkdir()
        told = torch.client(engine_dir, [Server("127.0.0.1", int(port_file.read_text()), TOKEN, 2)], folder)
        done = subprocess.run(
            [torch_env.python(), "-c", PROGRAM],
            env={**torch_env.plain_environment(), **told}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["2 [6.0, 6.0]", "full"]), done.stderr
    finally:
        server.terminate()
        server.wait(20)


def test_the_pytorch_of_a_python_is_told_without_its_import(engine_dir: Path) -> None:
    has = ask_python(str(torch_env.python()))
    assert ".".join(has.torch.split(".")[:2]) in installed(engine_dir).torch
    assert needs_of([str(torch_env.python()), "-m", "torch.distributed.run", os.devnull]).kind == "torch"
    assert has.torch != ask_python(sys.executable).torch
