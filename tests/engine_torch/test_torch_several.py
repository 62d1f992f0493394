"""Several devices of a lease: in one process, and one for each of several; on one server and on two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import torch_ranks
from tests.support.torch_engine import PROGRAMS, Server, client_environment, server, start_with

PARTS = ["mixed", "copies", "each", "data_parallel"]
DIES = """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
print("begun", x.sum().item(), flush=True)
if rank == 1:
    os._exit(7)
try:
    for _ in range(3):
        dist.all_reduce(x)
        x.sum().item()
except RuntimeError as fault:
    print("fault", str(fault).splitlines()[0], flush=True)
    os._exit(3)
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


def test_every_collective_has_the_bits_of_gloo(two_servers: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "collectives.py", 2, two_servers)


def test_training_in_parallel_has_the_bits_of_gloo(two_servers: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "parallel.py", 2, two_servers)


def test_a_rank_that_dies_ends_the_others(two_servers: list[Server]) -> None:
    first, second = (torch_ranks.ended(one, 60) for one in torch_ranks.start(DIES, 2, two_servers))
    assert second.code == 7
    assert first.code == 3
    assert "a rank has ended" in first.out
