"""Servers of a lease that know each other: collectives and copies go between them, and nobody else comes in."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from tests.support import torch_ranks
from tests.support.torch_engine import (
    PROGRAMS,
    TOKEN,
    Server,
    client_environment,
    servers_of_a_lease,
    start_with,
    wait_until,
)

BETWEEN = """
import torch
from elastic_ai_torch import start
x = torch.arange(1 << 20, dtype=torch.float32, device="cuda:0")
x.sum().item()
before = start.statistics()
y = x.to("cuda:1")
back = (y * 2).to("cuda:0")
assert torch.equal(back, x * 2)
after = start.statistics()
print("carried", after["bytes_down"] + after["bytes_up"] - before["bytes_down"] - before["bytes_up"])
"""
FORGED = """
import json, torch
from elastic_ai_torch import start
torch.zeros(1, device="cuda:0").item()
library = start._client.library
own = json.loads(library.member(0))
for members in ([own, [9, "1-00"]], [[0, "1-00"], own], [own, own], [["10.0.0.1", 22], own]):
    for rank in (0, 1):
        if members[rank] == own and rank == 0 and members[1] != [9, "1-00"]:
            continue
        try:
            library.join(0, json.dumps({"rank": rank, "members": members, "name": "x", "timeout_s": 1}))
            print("joined", members)
        except RuntimeError as fault:
            print("refused", str(fault))
print("lives", torch.ones(2, device="cuda:0").sum().item())
"""


@pytest.fixture(scope="module")
def lease(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two servers with a device each."""
    with servers_of_a_lease(tmp_path_factory.mktemp("peers"), [1, 1]) as made:
        yield made


def test_every_collective_has_the_bits_of_gloo(lease: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "collectives.py", 2, lease)


def test_training_in_parallel_has_the_bits_of_gloo_and_nothing_goes_by_the_client(lease: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "parallel.py", 2, lease)


def test_what_one_device_can_the_other_can(lease: list[Server]) -> None:
    start_with(PROGRAMS / "several_devices.py", client_environment(lease))


def test_a_copy_between_servers_does_not_come_here(lease: list[Server]) -> None:
    carried = int(start_with(BETWEEN, client_environment(lease)).out.split()[1])
    assert carried < 1 << 16


def test_a_rank_that_dies_ends_the_others(lease: list[Server]) -> None:
    from tests.engine_torch.test_torch_several import DIES

    first, second = (torch_ranks.ended(one, 60) for one in torch_ranks.start(DIES, 2, lease))
    assert second.code == 7
    assert first.code == 3
    assert "a rank has ended" in first.out
    wait_until(lambda: not lease[0].children() and not lease[1].children(), "no session is left")


def test_a_client_names_no_place_and_joins_no_group_of_others(lease: list[Server]) -> None:
    said = start_with(FORGED, client_environment(lease)).out.splitlines()
    assert said[-1] == "lives 2.0"
    assert not [line for line in said if line.startswith("joined")]


@pytest.mark.parametrize("token", [TOKEN, "x" * 20])
def test_who_has_not_the_servers_secret_is_turned_away(lease: list[Server], token: str) -> None:
    hello = struct.pack("<8sII64s64s256s", b"EAIPEER\n", 4, 1, b"", b"1-00", token.encode())
    with socket.create_connection(("127.0.0.1", lease[0].port), 10) as one:
        one.sendall(hello)
        assert b"does not know this token" in one.recv(4096)
