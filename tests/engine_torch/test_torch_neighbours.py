"""A tenant's processes are killed, on either side and at any moment: its neighbour trains on, and nothing stays."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import torch_wire as wire
from tests.support.torch_engine import MIB, TOKEN, Server, ended, go_on, line, run, server, start, wait_until

LIMIT = 256 * MIB
#: Trains until a line comes by its input, or for so many steps as its argument says.
NEIGHBOUR = """
import select, sys, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)
torch.manual_seed(11)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(8 * 14 * 14, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
losses = []
for step in range(steps):
    x, y = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if not step:
        print("ready", flush=True)
    if steps == 1 << 30 and select.select([sys.stdin], [], [], 0.02)[0]:
        break
for loss in losses: print("loss", loss.hex())
"""
#: What a client is in the middle of when it is killed; each says "ready" first, and goes on for good.
BEGIN = """
import torch
x = torch.ones(1 << 20, device="cuda")
x.sum().item()
print("ready", flush=True)
"""
VICTIMS = {
    "operators": "while True: x = x * 2 - x",
    "allocations": "while True: y = [torch.empty(1 << 16, device='cuda') for _ in range(64)]",
    "upload": "y = torch.ones(8 << 20)\nwhile True: z = y.cuda()",
    "download": "y = torch.ones(8 << 20, device='cuda')\nwhile True: y.cpu()",
    "questions": "while True: torch.nonzero(x)",
    "an operator without end": "x[:1].expand(1 << 40).sum().item()",
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sessions share 256 MiB."""
    with server(tmp_path_factory.mktemp("torch-neighbours"), "--memory-limit", str(LIMIT)) as running:
        yield running


@pytest.fixture(scope="module")
def neighbour(one: Server) -> Iterator[subprocess.Popen[str]]:
    """Trains beside all tests of this file; the last one holds its losses against native's."""
    program = start(NEIGHBOUR, "remote", one)
    line(program, "ready")
    yield program
    program.kill()


@pytest.fixture
def session(one: Server, neighbour: subprocess.Popen[str]) -> int:
    """The neighbour's process on the server."""
    wait_until(lambda: len(one.children()) == 1, "only the neighbour is there")
    return one.children()[0]


def descriptors(one: Server) -> int:
    """How many files and sockets the server's parent has open."""
    return len(list(Path(f"/proc/{one.process.pid}/fd").iterdir()))


def nothing_is_left(one: Server, session: int) -> None:
    """The neighbour's process alone, and memory for all but what it holds."""
    wait_until(lambda: one.children() == [session], "what was killed has left the server")
    with wire.Client(one.port, TOKEN) as client:
        answer = client.down(client.alloc(LIMIT - 32 * MIB), 8)
        assert not answer.errors
        assert answer.data == bytes(8)
    wait_until(lambda: one.children() == [session], "the client that looked has gone")


@pytest.mark.parametrize("doing", VICTIMS)
def test_a_client_that_is_killed_leaves_nothing(
    one: Server, neighbour: subprocess.Popen[str], session: int, doing: str
) -> None:
    """kill -9, whatever it was in."""
    held = descriptors(one)
    chance = random.Random(doing)
    victims = [start(BEGIN + VICTIMS[doing], "remote", one) for _ in range(2)]
    for victim in victims:
        line(victim, "ready")
        time.sleep(chance.random() / 4)
        victim.kill()
        victim.communicate()
    nothing_is_left(one, session)
    assert descriptors(one) == held
    assert neighbour.poll() is None


@pytest.mark.parametrize("doing", ["operators", "allocations"])
def test_a_session_that_is_killed_leaves_nothing(
    one: Server, neighbour: subprocess.Popen[str], session: int, doing: str
) -> None:
    """kill -9 of the server's child, that may hold the lock of what is counted for all."""
    for _ in range(3):
        victim = start(BEGIN + VICTIMS[doing], "remote", one)
        line(victim, "ready")
        for pid in one.children():
            if pid != session:
                os.kill(pid, signal.SIGKILL)
        done = ended(victim)
        assert done.code == 1
        assert "start the program again from its last checkpoint" in done.err
        assert "Segmentation" not in done.err
    nothing_is_left(one, session)
    assert neighbour.poll() is None


def test_a_client_that_is_killed_at_the_door_leaves_nothing(
    one: Server, neighbour: subprocess.Popen[str], session: int
) -> None:
    """Before, in and after its hello."""
    held = descriptors(one)
    hello = wire.hello(TOKEN)
    for count in (0, 1, 100, len(hello) - 1, len(hello)):
        with wire.connected(one.port) as connection:
            connection.sendall(hello[:count])
    nothing_is_left(one, session)
    assert descriptors(one) == held


def test_the_neighbours_losses_are_natives(neighbour: subprocess.Popen[str]) -> None:
    """Bit by bit, after all that has been killed beside it."""
    go_on(neighbour)
    remote = ended(neighbour)
    assert remote.code == 0, remote.err
    native = run(NEIGHBOUR, "native", None, str(len(remote.losses)), limit_s=600)
    assert len(remote.losses) > 1
    assert remote.losses == native.losses
