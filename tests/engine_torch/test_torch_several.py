"""Several devices of a lease, in one process; servers that do not know each other. Ranks: test_torch_peers.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import torch_ranks
from tests.support.torch_engine import PROGRAMS, Server, client_environment, line, server, start_with

PARTS = ["mixed", "copies", "each", "data_parallel"]

FIRST = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(min(rank, 1))
dist.init_process_group("nccl")
x = torch.full((3,), float(rank), device="cuda")
if rank == 0:
    dist.send(x + 5, 1)
elif rank == 1:
    dist.recv(x, 0)
print("line", x.tolist(), flush=True)
"""


@pytest.fixture(scope="module")
def two_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Each with a device."""
    folder = tmp_path_factory.mktemp("two-servers")
    with server(folder / "one") as one, server(folder / "other") as other:
        yield [one, other]


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Of one server."""
    with server(tmp_path_factory.mktemp("two-devices"), "--devices", "2") as one:
        yield [one, one]


@pytest.fixture(params=["two_servers", "two_devices"])
def devices(request: pytest.FixtureRequest) -> list[Server]:
    """Either."""
    found: list[Server] = request.getfixturevalue(request.param)
    return found


def test_what_one_device_can_the_other_can(devices: list[Server]) -> None:
    done = start_with(PROGRAMS / "several_devices.py", client_environment(devices))
    assert done.out.split()[:4] == PARTS
    assert done.out.split()[4:] == ["peers", str(devices[0] is devices[1])]


def test_a_first_message_waits_for_no_other_rank(two_servers: list[Server]) -> None:
    """Of three ranks two speak; the third has ended before."""
    ran = torch_ranks.run(FIRST, 3, two_servers)
    assert torch_ranks.lines(ran) == [["line [0.0, 0.0, 0.0]"], ["line [5.0, 5.0, 5.0]"], ["line [2.0, 2.0, 2.0]"]]


def test_a_server_that_leaves_ends_all_ranks(two_servers: list[Server], tmp_path: Path) -> None:
    with server(tmp_path) as leaves:
        ranks = torch_ranks.start(torch_ranks.SERVER_LEAVES, 2, [two_servers[0], leaves])
        for one in ranks:
            line(one, "begun")
        torch_ranks.all_end_with(leaves, ranks)
