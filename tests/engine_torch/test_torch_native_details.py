"""Details of torch that a program sees, natively beside by the engine: words of warnings, strides, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.torch_engine import Ran, Server

KINDS = (
    "add", "mm", "sum", "sort", "arange", "linspace", "eye", "cat", "qr", "normal", "aminmax", "std", "dimensions",
    "lstm", "vmap", "lists", "averaged", "numbers",
)  # fmt: skip
VALUES = """
import torch
from elastic_ai_torch import start
def told():
    return start.statistics()["signatures"]
x = torch.ones(3, dtype=torch.complex64, device="cuda")
for count in (4, 40):
    before = told()
    for step in range(count):
        torch.linspace(step, step + 0.5, 7, device="cuda")
        torch.linspace(complex(step, 1), 2, 7, device="cuda", dtype=torch.complex64)
        torch.logspace(step / 9, 1, 7, device="cuda")
        last = x * complex(step, 2)
    print(told() - before)
print(last.tolist()[0], torch.linspace(1j, 3, 3, device="cuda").tolist())
"""
SPARSE = """
import torch
rows, columns, values = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.tensor([1.0, 2.0])
dense = torch.eye(4)
for what in (
    lambda: dense.to_sparse_csr().to("cuda"), lambda: dense.to_sparse_csc().to("cuda"),
    lambda: dense.to_sparse_bsr((2, 2)).cuda(), lambda: dense.to_sparse().to("cuda"),
    lambda: torch.sparse_csr_tensor(rows, columns, values, device="cuda"),
    lambda: torch.sparse_csr_tensor(rows.cuda(), columns.cuda(), values.cuda()),
    lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), device="cuda"),
    lambda: torch.zeros([1] * 256, device="cuda"),
    lambda: torch.zeros(1, device="cuda").view([1] * 256) + 1,
):
    try:
        what()
        print("made")
    except NotImplementedError as fault:
        print(fault)
print(torch.ones(2, device="cuda").sum().item())
"""


@pytest.fixture(scope="module")
def both(torch_server: Server) -> dict[str, dict[str, Any]]:
    """Side -> name -> value and warnings."""
    from tests.support.torch_engine import PROGRAMS, run

    program = PROGRAMS / "details.py"

    def read(done: Ran) -> dict[str, Any]:
        return {name: told for name, *told in map(json.loads, done.out.splitlines())}

    return {"native": read(run(program, "native")), "engine": read(run(program, "remote", torch_server))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_detail_is_as_natively(both: dict[str, dict[str, Any]], kind: str) -> None:
    """Bits, sizes, strides, errors, and the words that are warned of at the line: each of that kind."""
    names = [name for name in both["native"] if name.partition(".")[0] == kind]
    assert names, kind
    assert {name: both["engine"][name] for name in names} == {name: both["native"][name] for name in names}


def test_all_kinds_are_compared(both: dict[str, dict[str, Any]]) -> None:
    """None of the program is left out."""
    assert {name.partition(".")[0] for name in both["native"]} == set(KINDS)


def test_another_float_or_complex_number_is_no_new_signature(torch_server: Server) -> None:
    """Ends of linspace and logspace, complex factors: they travel beside it."""
    from tests.support.torch_engine import run

    few, many, values = run(VALUES, "remote", torch_server).out.splitlines()
    assert int(few) <= 4
    assert int(many) == 0
    assert values == "(39+2j) [1j, (1.5+0.5j), (3+0j)]"


def test_what_is_not_carried_is_refused_where_it_would_be_made(torch_server: Server) -> None:
    """Not at its first use: sparse tensors of each layout, more dimensions than the wire has; the session goes on."""
    from tests.support.torch_engine import run

    *refused, last = run(SPARSE, "remote", torch_server).out.splitlines()
    assert len(refused) == 9
    assert all(line.startswith("not on a leased GPU: ") for line in refused), refused
    assert last == "2.0"
