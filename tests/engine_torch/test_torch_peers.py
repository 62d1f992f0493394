"""Servers of a lease that know each other, or one with several devices: collectives and copies go between them, and
nobody else comes in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import torch_ranks
from tests.support import torch_wire as wire
from tests.support.torch_engine import (
    PROGRAMS,
    TOKEN,
    Server,
    client_environment,
    ended,
    go_on,
    line,
    run,
    server,
    servers_of_a_lease,
    start_with,
    wait_until,
)
from tests.support.torch_env import ROOT

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
SUM = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group("nccl")
x = torch.ones(2, device="cuda")
dist.all_reduce(x)
print("line", x.tolist(), flush=True)
"""
#: Sums of 16 MiB in all.
CARRIED = """
import os, torch, torch.distributed as dist
from elastic_ai_torch import start
torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
for _ in range(4):
    dist.all_reduce(x)
said = start.statistics()
print("line", x[0].item(), x[-1].item())
print("carried", said["bytes_down"] + said["bytes_up"])
"""
#: What torch's backends would take as it is, and write where it leads.
WRONG = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
x.sum().item()
def told(what):
    try:
        what(torch.ones(4, device="cuda"))
        torch.cuda.synchronize()
        print("nothing")
    except RuntimeError as fault:
        print("told", str(fault).splitlines()[0])
for there in (7, -3):
    told(lambda y: torch.ops.elastic_ai.collective([], [y], rank, 1, "send", "SUM", there, 0, [], []))
    told(lambda y: torch.ops.elastic_ai.collective([y], [], rank, 1, "recv", "SUM", there, 0, [], []))
for rows in ([64, -60], [1 << 62, 4 - (1 << 62)]):
    z = torch.ones(4, device="cuda")
    told(lambda y: torch.ops.elastic_ai.collective([y], [z], rank, 1, "alltoall_base", "SUM", 0, 0, rows, [2, 2]))
told(lambda y: torch.ops.elastic_ai.collective([y], [z[:2]], rank, 1, "alltoall_base", "SUM", 0, 0, [], []))
told(lambda y: torch.ops.elastic_ai.collective([], [], rank, 1, "alltoall", "SUM", 0, 0, [], []))
again = torch.ones(4, device="cuda")
dist.all_reduce(again)
print("lives", again.sum().item())
"""
#: A program that asks whether it is done, and drops handles.
ASKS = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group("nccl")
for number in range(20):
    x = torch.full((1 << 18,), 1.0, device="cuda")
    loss, other = x.mean(), x.amax()
    other.item(), loss.item()
    loss = x.mean()
    work = dist.all_reduce(loss, async_op=True)
    x.amax().item()
    while not work.is_completed():
        pass
    assert loss.item() == 2.0, (number, loss.item())
for _ in range(300):
    dist.all_reduce(torch.ones(4, device="cuda"), async_op=True)
last = torch.ones(4, device="cuda")
dist.all_reduce(last)
print("lives", last.sum().item())
"""
#: A device alone, then another of another server; seeds hold for both.
ONE = """
import sys, torch
torch.cuda.set_device(1)
torch.manual_seed(3)
torch.cuda.empty_cache()
print("line", torch.cuda.device_count(), torch._C._cuda_hasPrimaryContext(0), torch.rand(2, device="cuda").tolist())
print("one", torch._C._cuda_hasPrimaryContext(1), torch.backends.cudnn.version() > 0, flush=True)
sys.stdin.readline()
print("line", torch.rand(2, device="cuda:0").tolist(), torch.initial_seed())
print("both", flush=True)
sys.stdin.readline()
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


TRIES = """
import sys, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from elastic_ai_torchserver.groups import try_out
from elastic_ai_torchserver.peers import PeerFault
gloo = dist.ProcessGroupGloo(dist.HashStore(), 0, 1)
try_out(gloo, 1, "cpu")
try:
    try_out(gloo, 2, "cpu")
except PeerFault as fault:
    print(fault)
# its threads end before Python does; one that lets go of a tensor later aborts the program
del gloo
"""
#: The groups of this machine that a program leaves open, and gloo's threads that are there when all else has ended.
LEFT_OPEN = """
import atexit, pathlib, sys
def left():
    names = [one.read_text() for one in pathlib.Path("/proc/self/task").glob("*/comm")]
    print("left", sum(name.startswith("pt_gloo") for name in names), "of", meant)
atexit.register(left)
import datetime, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from elastic_ai_torch.collective import Collective
from elastic_ai_torch.collectives_here import CollectivesHere
limit, groups = datetime.timedelta(seconds=60), []
for _ in range(2):
    groups.append(CollectivesHere(dist.HashStore(), 0, 1, limit))
    ones = torch.ones(1)
    groups[-1].start(Collective("allreduce", [ones], [ones])).wait()
names = [one.read_text() for one in pathlib.Path("/proc/self/task").glob("*/comm")]
meant = sum(name.startswith("pt_gloo") for name in names)
"""


@pytest.fixture(scope="module")
def lease(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two servers with a device each."""
    with servers_of_a_lease(tmp_path_factory.mktemp("peers"), [1, 1]) as made:
        yield made


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Of two devices."""
    with servers_of_a_lease(tmp_path_factory.mktemp("one-server"), [2]) as made:
        yield made


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two servers that do not know each other: the client carries."""
    folder = tmp_path_factory.mktemp("strangers")
    with server(folder / "one") as one, server(folder / "other") as other:
        yield [one, other]


@pytest.fixture(params=["lease", "one_server", "strangers"])
def devices(request: pytest.FixtureRequest) -> list[Server]:
    """Each of them."""
    found: list[Server] = request.getfixturevalue(request.param)
    return found


def test_every_collective_has_the_bits_of_gloo(devices: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "collectives.py", 2, devices)


def test_training_in_parallel_has_the_bits_of_gloo(devices: list[Server]) -> None:
    torch_ranks.same_lines(PROGRAMS / "parallel.py", 2, devices)


@pytest.mark.parametrize("known", ["lease", "one_server"])
def test_sums_do_not_come_here(known: str, request: pytest.FixtureRequest) -> None:
    for one in torch_ranks.run(CARRIED, 2, request.getfixturevalue(known)):
        said = dict(line.split(" ", 1) for line in one.out.splitlines())
        assert said["line"] == "16.0 16.0"
        assert int(said["carried"]) < 1 << 16


def test_what_one_device_can_the_other_can(lease: list[Server]) -> None:
    start_with(PROGRAMS / "several_devices.py", client_environment(lease))


def test_a_copy_between_servers_does_not_come_here(lease: list[Server]) -> None:
    carried = int(start_with(BETWEEN, client_environment(lease)).out.split()[1])
    assert carried < 1 << 16


def test_what_no_rank_and_no_row_is_ends_no_server(lease: list[Server]) -> None:
    for one in torch_ranks.run(WRONG, 2, lease):
        said = one.out.splitlines()
        assert said[-1] == "lives 8.0"
        assert [line for line in said[:-1] if not line.startswith("told")] == []
        assert "there is no such rank to speak with" in said[0]
        assert "rows that its tensor has not" in said[4]


def test_a_sum_that_is_asked_for_is_there_and_a_handle_that_is_dropped_costs_nothing(lease: list[Server]) -> None:
    assert [one.out for one in torch_ranks.run(ASKS, 2, lease)] == ["lives 8.0\n"] * 2


def test_a_rank_that_dies_ends_the_others(devices: list[Server]) -> None:
    first, second = (ended(one, 60) for one in torch_ranks.start(torch_ranks.DIES, 2, devices))
    assert second.code == 7
    assert first.code == 3
    assert "a rank has ended" in first.out
    wait_until(lambda: not any(one.children() for one in devices), "no session is left")


def test_a_client_names_no_place_and_joins_no_group_of_others(lease: list[Server]) -> None:
    said = start_with(FORGED, client_environment(lease)).out.splitlines()
    assert said[-1] == "lives 2.0"
    assert not [line for line in said if line.startswith("joined")]


def test_a_process_has_a_session_only_where_it_uses_a_device(lease: list[Server]) -> None:
    """On a GPU each session takes memory for its context. What was set before holds for each device when it comes."""
    with torch_ranks.start(ONE, 1, lease)[0] as program:
        first = line(program, "line 2 False ").removeprefix("line 2 False ")
        assert line(program, "one") == "one True True"
        assert [len(one.children()) for one in lease] == [0, 1]
        go_on(program)
        assert line(program, "line") == f"line {first} 3"
        line(program, "both")
        assert [len(one.children()) for one in lease] == [1, 1]
        go_on(program)
        assert ended(program).code == 0


def test_a_rank_whose_server_has_no_device_for_it_ends_all_ranks(lease: list[Server], tmp_path: Path) -> None:
    """As where a part is too small for one more context: a sentence, the launcher ends, and no session is left."""
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    with server(tmp_path / "broken", "--device", "cuda") as broken:
        ran = torch_ranks.torchrun(program, 2, [lease[0], broken])
        assert ran.code == 1
        assert "line" not in ran.out
        said = [one for one in ran.err.splitlines() if "RuntimeError: the GPU server " in one]
        assert len(said) == 1, ran.err
        assert f"127.0.0.1:{broken.port} refused this session: the server's device does not start" in said[0]
        wait_until(lambda: not lease[0].children() and not broken.children(), "no session is left")


def test_a_group_whose_first_sum_is_wrong_is_none() -> None:
    """What a GPU's group is tried by; here by gloo."""
    said = run(TRIES, "native", None, str(ROOT / "engine/torch/server")).out
    assert said == "a first sum over 2 sessions was 1\n"


def test_a_program_that_leaves_groups_open_ends_after_their_threads() -> None:
    """Otherwise one of a few dozen aborts at its end on a busy machine, which a GPU's group never does."""
    said = run(LEFT_OPEN, "native", None, str(ROOT / "engine/torch/python")).out.split()
    assert said[:2] == ["left", "0"]
    assert int(said[3]) >= 2, said


@pytest.mark.parametrize("token", [TOKEN, "x" * 20])
def test_who_has_not_the_servers_secret_is_turned_away(lease: list[Server], token: str) -> None:
    hello = wire.hello(token, magic=b"EAIPEER\n")
    with socket.create_connection(("127.0.0.1", lease[0].port), 10) as one:
        one.sendall(hello)
        assert b"does not know this token" in one.recv(4096)


def watched(pid: int) -> list[bool]:
    """Of each connection of a process, whether the kernel looks after it (its row has a keep-alive timer: 2)."""
    links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:")}
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [row[5].startswith("02:") for row in rows if row[9] in inodes and row[3] == "01"]


def test_a_server_that_leaves_ends_all_ranks_and_nothing_is_left(tmp_path: Path) -> None:
    """And its connections were watched: one of a cut network ends too."""
    with servers_of_a_lease(tmp_path, [1, 1]) as (stays, leaves):
        ranks = torch_ranks.start(torch_ranks.SERVER_LEAVES, 2, [stays, leaves])
        for one in ranks:
            line(one, "begun")
        for one in (stays, leaves):

            def connections(server: Server = one) -> list[bool]:
                return max(map(watched, server.children()), key=len)

            assert len(connections()) >= 2, "of the client, and of the other server"
            # while an acknowledgement is on its way the kernel shows another timer
            wait_until(lambda all_of=connections: all(all_of()), "each of them is watched")
        torch_ranks.all_end_with(leaves, ranks)
        wait_until(lambda: not stays.children(), "no session is left")


@pytest.mark.rest  # a first rank waits a minute for the others
def test_servers_that_do_not_trust_each_other_leave_it_to_the_client(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    with ExitStack() as stack:
        made = []
        for i in (0, 1):
            secret = tmp_path / f"secret{i}"
            secret.write_text(f"{i}" * 40)
            known = ("--peers", str(peers), "--peer-token-file", str(secret))
            made.append(stack.enter_context(server(tmp_path / f"server{i}", *known)))
        peers.write_text("".join(f"127.0.0.1 {one.port}\n" for one in made))
        ran = torch_ranks.run(SUM, 2, made)
    assert torch_ranks.lines(ran) == [["line [2.0, 2.0]"]] * 2
    assert "collectives go by this machine: " in ran[0].err
