"""Small things that programs meet, each held against what PyTorch does on the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.torch_engine import run

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

OPTIMIZED = """
import torch, torch._dynamo
x = torch.ones(2, device="cuda")
for decorate in (torch._dynamo.optimize("inductor"), torch._dynamo.optimize(), torch._dynamo.optimize("eager")):
    print(decorate(lambda a: a + 1)(x).tolist())
"""
OVERLAPPING = """
import torch
y, at = torch.rand(3, 6, device="cuda"), torch.tensor([0, 1], device="cuda")
try:
    torch.index_select(y, 1, at, out=torch.rand(1, 6, device="cuda").expand(2, 6))
except RuntimeError as fault:
    print(fault)
"""
WARNED = """
import torch
a = torch.eye(3, device="cuda")
print(torch.triangular_solve(a, a)[0].sum().item())
"""
ORDER = """
import torch
w = torch.ones(2, device="cuda", requires_grad=True)
threads = []
w.register_hook(lambda gradient: threads.append(torch.autograd.is_multithreading_enabled()))
w.sum().backward()
print(threads, torch.autograd.is_multithreading_enabled())
"""


def test_dynamo_called_directly_makes_whole_graphs(torch_server: Server) -> None:
    """torch._dynamo.optimize makes no kernels for a GPU elsewhere, and does not fail for lack of a compiler."""
    done = run(OPTIMIZED, "remote", torch_server)
    assert done.out.splitlines() == ["[2.0, 2.0]"] * 3
    assert "leased GPU" not in done.err


def test_an_out_that_overlaps_itself_is_refused(torch_server: Server) -> None:
    """The server's kernel sees it before it would be resized."""
    assert "more than one element of the written-to tensor" in run(OVERLAPPING, "remote", torch_server).out


def test_a_warning_of_an_operator_names_the_line_of_the_program(torch_server: Server) -> None:
    """Not a file of the engine's."""
    done = run(WARNED, "remote", torch_server)
    assert "<string>:4: UserWarning: torch.triangular_solve is deprecated" in done.err
    assert ".cc:" not in done.err


def test_a_backward_pass_in_a_lab_runs_as_on_a_processor(torch_server: Server) -> None:
    """In the thread that called it; the program's own setting is as it was."""
    assert run(ORDER, "remote", torch_server).out.split("\n")[0] == "[False] True"
