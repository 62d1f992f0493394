"""torch.compile on a leased GPU: whole graphs, one message a run, with eager's bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.torch_engine import PROGRAMS, Ran, run, same_bits

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

BEGIN = """
import json, torch
from torch import nn
from torch.nn import functional
from elastic_ai_torch import start
torch.manual_seed(0)
said = {}
def counts(call, *given):
    before = start.statistics()
    result = call(*given)
    after = start.statistics()
    return result, {key: after[key] - before[key] for key in ("calls", "graph_runs", "waits", "local_allocations")}
def last(call, *given, times=4):
    for _ in range(times - 1):
        call(*given)
    return counts(call, *given)
def hexed(tensor):
    return [value.hex() for value in tensor.detach().double().flatten().tolist()]
ONE_RUN = {"calls": 0, "graph_runs": 1, "waits": 0, "local_allocations": 0}
"""
EAGER = "a graph runs operator by operator"


def result(body: str, on: Server, **more: str) -> tuple[dict[str, object], Ran]:
    """What the program has put in `said`."""
    done = run(f"{BEGIN}\n{body}\nprint(json.dumps(said))", "remote", on, **more)
    return done.result(), done


@pytest.mark.parametrize("name", ["decode_compiled", "train_compiled"])
def test_a_compiled_program_has_the_bits_of_native_eager(name: str, torch_server: Server) -> None:
    """A static cache with mode="reduce-overhead" and fullgraph; attention, and another length in training."""
    ran = same_bits(PROGRAMS / f"{name}.py", torch_server)
    assert EAGER not in ran["remote"].err


def test_a_run_is_one_message(torch_server: Server) -> None:
    """For inference, forward and backward, a decorated function, and any name of the default backend."""
    said, done = result(
        """
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).cuda()
x = torch.randn(3, 8).cuda()
with torch.no_grad():
    plain = hexed(model(x))
    ways = {"default": {}, "inductor": {"backend": "inductor"}, "overhead": {"mode": "reduce-overhead"}}
    for key, options in ways.items():
        torch._dynamo.reset()
        made, said[key] = last(torch.compile(model, **options), x)
        assert hexed(made) == plain
with torch.inference_mode():
    torch._dynamo.reset()
    made, said["inference"] = last(torch.compile(model, fullgraph=True), x)
    assert hexed(made) == plain and made.is_inference()
@torch.compile
def decorated(a):
    return (a * 2).cos().view(-1, 2)
made, said["decorated"] = last(decorated, x)
assert hexed(made) == hexed((x * 2).cos())
torch._dynamo.reset()
compiled = torch.compile(model)
def step():
    return torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
made, said["gradients"] = last(step)
wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
assert [hexed(one) for one in made] == [hexed(one) for one in wanted]
""",
        torch_server,
    )
    one = {"calls": 0, "graph_runs": 1, "waits": 0, "local_allocations": 0}
    for name in ("default", "inductor", "overhead", "inference", "decorated"):
        assert said[name] == one, name
    assert said["gradients"] == {"calls": 6, "graph_runs": 2, "waits": 0, "local_allocations": 0}  # the loss is eager
    assert EAGER not in done.err


def test_what_a_graph_writes_is_written_each_run(torch_server: Server) -> None:
    """Inputs, running statistics, views; an output that is an input or lies in its memory; versions for autograd."""
    said, done = result(
        """
@torch.compile
def write(a, b):
    a.add_(b)
    b[0].mul_(2)
    return a, a.t(), a.sum(), a.view(-1)[1:]
a, b = torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda")
c, d = torch.ones(2, 2), torch.ones(2, 2)
for turn in range(6):
    version = a._version
    same, turned, total, tail = write(a, b)
    c.add_(d); d[0].mul_(2)
    assert same is a and a._version > version, turn
    turned[0, 0] += 1; c[0, 0] += 1
    assert a.tolist() == c.tolist() and b.tolist() == d.tolist() and tail.tolist() == c.view(-1)[1:].tolist(), turn
norm, own = nn.BatchNorm1d(4).cuda(), nn.BatchNorm1d(4)
compiled = torch.compile(norm)
with torch.no_grad():
    for turn in range(5):
        x = torch.randn(6, 4)
        compiled(x.cuda()), own(x)
        assert hexed(norm.running_var) == hexed(own.running_var) and norm.num_batches_tracked.item() == turn + 1
number = torch.tensor(0, device="cuda")
@torch.compile
def count(n):
    n.add_(1)
for turn in range(5):
    count(number)
    assert number.item() == turn + 1
said["runs"] = start.statistics()["graph_runs"]
""",
        torch_server,
    )
    assert said["runs"] >= 9
    assert EAGER not in done.err


def test_random_numbers_advance_as_in_eager(torch_server: Server) -> None:
    """Dropout in a graph leaves the generator where eager leaves it, and draws anew each run."""
    said, _ = result(
        """
x = torch.ones(64, device="cuda")
def draw(x):
    return functional.dropout(x, 0.5) + torch.rand_like(x)
def all_of(call):
    torch.manual_seed(3)
    return [hexed(call(x)) for _ in range(5)] + [hexed(torch.rand(4, device="cuda"))]
eager, compiled = all_of(draw), all_of(torch.compile(draw))
assert eager == compiled and eager[0] != eager[1]
said["runs"] = start.statistics()["graph_runs"]
""",
        torch_server,
    )
    assert said["runs"] >= 3


def test_values_that_change_are_not_kept(torch_server: Server) -> None:
    """Numbers and tensors of the CPU, sizes, settings: taken anew each run, or run by operators, and said once."""
    said, done = result(
        """
x = torch.arange(6.0, device="cuda").view(2, 3)
@torch.compile
def scaled(x, number, scalar):
    return x * number + scalar
for turn in range(8):
    value = torch.tensor(turn * 0.5)
    assert scaled(x, turn, value).tolist() == (x.cpu() * turn + value).tolist(), turn
@torch.compile
def by_tensor(x, scalar):
    return x * scalar
for turn in range(6):
    made, said["scalar"] = counts(by_tensor, x, torch.tensor(turn * 0.25))
    assert made.tolist() == (x.cpu() * (turn * 0.25)).tolist(), turn
@torch.compile(dynamic=True)
def sized(x):
    return x.softmax(-1).sum(0)
for turn in range(3):
    for length in (2, 5, 7):
        y = torch.randn(3, length)
        assert hexed(sized(y.cuda())) == hexed(y.softmax(-1).sum(0)), (turn, length)
def uploads(x, y, at):
    return x[at] + y.to("cuda")[:3]
uploads = torch.compile(uploads)
for turn in range(7):
    y, at = torch.randn(4), torch.tensor(turn % 2)
    assert hexed(uploads(x, y, at)) == hexed(x.cpu()[turn % 2] + y[:3]), turn
@torch.compile
def turned(x):
    x.unsqueeze_(0)
    return x * 2
for turn in range(5):
    y = torch.ones(2, device="cuda")
    assert turned(y).shape == (1, 2) and y.shape == (1, 2), turn
""",
        torch_server,
    )
    assert said["scalar"] == {"calls": 0, "graph_runs": 1, "waits": 0, "local_allocations": 0}
    assert done.err.count(EAGER) == 1


def test_graph_breaks_autocast_and_half_written_programs(torch_server: Server) -> None:
    """A value that is read in the middle; casts of weights that change between two regions."""
    said, _ = result(
        """
layer = nn.Linear(4, 4).cuda()
@torch.compile
def broken(x):
    y = x * 2
    if y.sum().item() > 0:
        y = y + 1
    return y.relu()
for turn in range(5):
    for sign in (1, -1):
        x = torch.full((3,), 1.5 * sign)
        y = x * 2 + (sign > 0)
        assert broken(x.cuda()).tolist() == y.relu().tolist()
compiled = torch.compile(layer)
x = torch.randn(2, 4).cuda()
for turn in range(6):
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for _ in range(3):
            made = compiled(x)
        assert hexed(made) == hexed(layer(x)), turn
        layer.weight.mul_(1.5)
said["runs"] = start.statistics()["graph_runs"]
""",
        torch_server,
    )
    assert said["runs"] >= 10


def test_errors_in_a_graph_are_eagers(torch_server: Server) -> None:
    """Late and kept, of their kind; the session goes on, and the next run is right."""
    said, _ = result(
        """
table = torch.ones(4, 2, device="cuda")
@torch.compile
def pick(table, at):
    return table.index_select(0, at) * 2
def caught(call):
    try:
        call()
        return "nothing"
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
good, bad = torch.tensor([1], device="cuda"), torch.tensor([9], device="cuda")
for _ in range(4):
    pick(table, good)
def eager():
    (table.index_select(0, bad) * 2).tolist()
said["eager"] = caught(eager)
made, said["counts"] = counts(pick, table, bad)  # nothing is raised yet
said["read"] = caught(lambda: made.tolist())
said["again"] = pick(table, good).tolist()
grown = torch.compile(lambda x: (x.repeat(64, 1) + 1).sum(0))
small = torch.ones(1, 1 << 16, device="cuda")
for _ in range(3):
    assert grown(small)[0].item() == 128
held = torch.empty(int(torch.cuda.mem_get_info()[0]) - (20 << 20), dtype=torch.uint8, device="cuda")
said["memory"] = caught(lambda: grown(small))
del held
said["after"] = grown(small)[0].item()
""",
        torch_server,
    )
    assert said["counts"] == {"calls": 0, "graph_runs": 1, "waits": 0, "local_allocations": 0}
    assert said["read"] == said["eager"]
    assert "out of range" in str(said["eager"])
    assert said["again"] == [[2.0, 2.0]]
    assert str(said["memory"]).startswith("OutOfMemoryError: CUDA out of memory")
    assert said["after"] == 128


def test_nothing_stays_of_a_graph_that_is_gone(torch_server: Server) -> None:
    """What it holds in between is free after a run; a variant of each size; many graphs, the oldest ones dropped."""
    said, _ = result(
        """
def layers(x):
    for _ in range(8):
        x = x + 1
    return x.sum()
compiled = torch.compile(layers)
x = torch.ones(1 << 10, device="cuda")
for _ in range(3):
    compiled(x)
torch.cuda.synchronize()
held = torch.cuda.memory_allocated()
for _ in range(20):
    compiled(x)
assert torch.cuda.memory_allocated() == held
ops = torch.ops.elastic_ai
made = []
for turn in range(2500):
    number = ops.graph_new()
    for _ in range(2):
        variant, _results = ops.graph_run(number, [], [x])
    assert variant == -2
    ops.graph_begin(number, [], [x])
    variant, why = ops.graph_end([x + turn], "")
    assert variant >= 0, why
    made.append(number)
torch.cuda.synchronize()
variant, results = ops.graph_run(made[-1], [], [x])
assert variant >= 0 and results[0][0].item() == 2500
assert ops.graph_run(made[0], [], [x])[0] < 0  # told again when it is used again
for number in made:
    ops.graph_drop(number)
assert layers(x).item() == compiled(x).item()
""",
        torch_server,
    )
    assert said == {}
