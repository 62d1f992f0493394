"""Small values that the client keeps: they are the server's, whatever writes them, and an error of theirs is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support import torch_engine
from tests.support.torch_engine import PROGRAMS, ROOT, run
from tests.support.torch_sweep import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.torch_engine import Ran, Server

CHECK = {"ELASTIC_AI_TORCH_CHECK_KNOWN": "1"}
"""Each value that is taken for known is compared with the server's, when it is read and after each operator."""
WRONG = "a value that was taken for known"
CLIENT = ROOT / "engine/torch/client"
NO_WRITES = {
    "SIGNATURE", "ALLOC", "FREE", "DOWN", "SYNC", "FORGET", "FLAGS", "SEED", "RNG_KEEP", "RNG_USE", "RNG_GET",
    "RNG_SET", "EVENT", "EVENT_WAIT", "DEVICE", "DROP", "STAGE", "GRAPH", "VERBS",
}  # fmt: skip
"""Messages that change no bytes of a storage that there was before."""
WRITES = {
    "CALL": "sent()",
    "ASK": "sent()",
    "RESIZE": "written()",
    "UP": "written()",
    "USE": "Written written",
    "PEER_COPY": "written()",
    "COLLECTIVE": "written()",
    "RUN": "written()",
}
"""Messages that do, and what the client says of it after putting one in the queue."""
SENT_BY = {"USE": "copies.cc"}
#: In the connection's own files, of which none writes a storage.
BELOW = {"STAGE", "DEVICE", "VERBS"}


def lines(ran: Ran) -> list[str]:
    return [line for line in ran.out.splitlines() if not line.startswith(("device", "counted"))]


def counted(ran: Ran) -> dict[str, int]:
    (line,) = [line for line in ran.out.splitlines() if line.startswith("counted")]
    return {name: int(value) for name, _, value in (word.partition("=") for word in line.split()[1:])}


@pytest.mark.parametrize("check", [False, True])
def test_what_is_read_is_what_was_written(check: bool, torch_server: Server) -> None:
    """Every way of writing a small value that was read before, in place, by views, copies, sizes, threads, statistics,
    optimisers; values that are no numbers; arithmetic of integers to its overflow: natively and by the engine."""
    program = PROGRAMS / "known_values.py"
    remote = run(program, "remote", torch_server, **(CHECK if check else {}))
    assert lines(remote) == lines(run(program, "native"))
    counts = counted(remote)
    assert counts["known_values"] > 100
    assert counts["values_along"] > 100
    assert counts["values_computed"] > 100
    assert (counts["values_checked"] > 100, counts["values_wrong"]) == (check, 0)


THREAD = """
import threading, time, torch
from elastic_ai_torch import start
torch.set_num_threads(1)
big = torch.rand(1024, 1024, device="cuda")
def step():
    value = big[0, 0] * 0 + 1
    slow = big
    for _ in range(6):
        slow = slow @ big
    return value, slow.sum()
for number in range(12):
    value, slow = step()
    torch.cuda.synchronize()
    value.item()
    slow.item()
    value.add_(1)
value, slow = step()
asks = threading.Thread(target=slow.item)
before = start.statistics()["waits"]
asks.start()
while start.statistics()["waits"] == before:
    time.sleep(0.001)
value.add_(1)
print("under way", asks.is_alive())
asks.join()
print("along", start.statistics()["values_along"])
print("value", value.item(), "same", (value == 2).item())
"""


def test_an_answer_that_was_asked_before_a_write_is_not_believed_after_it(torch_server: Server) -> None:
    """A thread waits for a slow sum, and a small value comes along; another thread has written that meanwhile."""
    told = run(THREAD, "remote", torch_server).out
    assert "under way True" in told
    assert int(re.findall(r"along (\d+)", told)[0]) > 0
    assert "value 2.0 same True" in told


LATE = """
import torch
table = torch.arange(4.0).cuda()
def step(index):
    good = table.sum() * 2
    bad = table[torch.tensor([index]).cuda()].sum()
    return good, bad
for _ in range(3):
    good, bad = step(1)
    print(good.item(), bad.item())
good, bad = step(9)
print("good", good.item())
for _ in range(2):
    try:
        print("bad", bad.item())
    except IndexError as fault:
        print("refused", fault)
torch.cuda.synchronize()
good, bad = step(9)
print("good", good.item())
try:
    torch.cuda.synchronize()
    print("synchronized")
except IndexError as fault:
    print("refused at the end", fault)
good, bad = step(2)
print(good.item(), bad.item())
torch.cuda.synchronize()
"""


def test_an_error_of_a_value_that_comes_along_is_told_where_it_is_read(torch_server: Server) -> None:
    """Neither at the line of the value that was read before it, nor never: a synchronisation tells what nobody read."""
    told = run(LATE, "remote", torch_server).out.splitlines()
    assert told[3] == told[6] == "good 12.0"
    assert [line.split(" index")[0] for line in told[4:6]] == ["refused"] * 2
    assert told[7].startswith("refused at the end index 9 is out of bounds")
    assert told[8] == "12.0 2.0"


FORK = """
import os, torch
kept = torch.tensor([1.0, 2.0]).cuda()
print(kept[0].item(), flush=True)
if os.fork() == 0:
    for use in (lambda: kept[0].item(), lambda: kept + 1, lambda: (kept + 1)[0].item()):
        try:
            print(use(), flush=True)
        except RuntimeError as fault:
            print("refused", fault, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_child_has_no_known_values(torch_server: Server) -> None:
    """As with CUDA, it can use nothing of the device."""
    told = run(FORK, "remote", torch_server).out.splitlines()
    assert told[0] == "1.0"
    assert len(told) == 4
    assert all(line.startswith("refused Cannot re-initialize CUDA in forked subprocess") for line in told[1:])


FAILED = """
import torch
kept, table = torch.tensor([1.0, 2.0]).cuda(), torch.arange(4.0).cuda()
print(kept[0].item())
for _ in range(3):
    table[torch.tensor([1]).cuda()][0].item()
bad = table[torch.tensor([9]).cuda()]
for each in (bad, kept, kept):
    try:
        print(each[0].item())
    except torch.AcceleratorError as fault:
        print("refused", flush=True)
"""


def test_a_failed_device_has_no_known_values(tmp_path: Path) -> None:
    """After an error of the device itself every use is refused, reading what was uploaded too."""
    with torch_engine.server(tmp_path, "--like-cuda", "3") as strict:
        assert run(FAILED, "remote", strict).out.splitlines() == ["1.0", *["refused"] * 3]


ELSEWHERE = """
import torch
x = torch.ones(2).cuda()
full_like = lambda *a, **k: torch.full_like(*a, 3.0, **k)
for make in (torch.zeros_like, torch.ones_like, full_like, torch.empty_like, torch.rand_like):
    print(make(x, device="cpu").device, make(x).device, make(x, device="cuda").device, make(x, device="cuda:0").device)
"""


def test_a_tensor_like_another_is_on_the_device_that_was_asked_for(torch_server: Server) -> None:
    """On the processor too, where it is like one of the device."""
    told = run(ELSEWHERE, "remote", torch_server).out.splitlines()
    assert told == ["cpu cuda:0 cuda:0 cuda:0"] * 5


GRAPHS = """
import torch
count, other = torch.tensor([0]).cuda(), torch.tensor([10]).cuda()
@torch.compile
def step(x, count):
    count.add_(1)
    return x * count, count > 3
for number in range(1, 8):
    y, more = step(torch.tensor([2]).cuda(), count)
    told = [count.item(), y.item(), more.item(), (count == number).item(), other.item()]
    assert told == [number, 2 * number, number > 3, True, 10], told
from elastic_ai_torch import start
print("runs", start.statistics()["graph_runs"])
"""


def test_a_whole_graph_writes_what_was_known(torch_server: Server) -> None:
    """Its inputs that it changes are no longer known; its results are read. A client that checks reads in between,
    so that it would record no graph."""
    (told,) = run(GRAPHS, "remote", torch_server).out.splitlines()
    assert int(told.split()[1]) >= 4


def test_every_message_that_writes_makes_the_client_forget() -> None:
    """Each kind of message is one that writes no storage, or one after which the client says that it is written; a new
    kind of message has to be put here in one of the two."""
    wire = (ROOT / "engine/torch/shared/wire.h").read_text()
    (listed,) = re.findall(r"enum class ToServer : uint8_t \{(.*?)\n\};", wire, re.S)
    kinds = set(re.findall(r"^  ([A-Z_]+) = \d+,", listed, re.M))
    assert kinds == NO_WRITES | set(WRITES)
    sources = {path.name: path.read_text() for path in CLIENT.rglob("*.cc")}
    for kind in kinds:
        users = [name for name, text in sources.items() if f"ToServer::{kind}" in text and not name.startswith("queue")]
        assert bool(users) == (kind not in BELOW), kind
        for name in [SENT_BY.get(kind, name) for name in users] if kind in WRITES else []:
            assert WRITES[kind] in sources[name], f"{name} sends {kind}"


def test_no_operator_writes_what_its_schema_does_not_say(torch_server: Server) -> None:
    """One sample of every operator, its arguments compared with the server's afterwards."""
    swept = sweep("forward", torch_server, "--samples", "1", **CHECK)
    assert swept.ran() > 600
    assert WRONG not in swept.told
