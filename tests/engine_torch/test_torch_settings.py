"""What decides about results beside sizes: default dtype, modes, empty dimensions; and errors at their line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.torch_engine import PROGRAMS, run

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

VALUES_ON_THE_PROCESSOR = """
import torch
place = torch.zeros(5, device="cuda")
index = torch.tensor([0, 1])
for accumulate in (True, False):
    try:
        place.index_put_((index,), torch.tensor([1.0, 2.0]), accumulate=accumulate)
        print("no error")
    except RuntimeError as fault:
        print(fault)
place.index_put_((index,), torch.tensor(3.0))  # one number may be there
print(place.tolist(), place[index].tolist())
"""


def test_settings_and_modes_are_seen_by_calls_that_were_learned_without_them(torch_server: Server) -> None:
    """Every line, results and refusals, as natively."""
    program = PROGRAMS / "settings.py"
    native, remote = run(program, "native"), run(program, "remote", torch_server)
    assert len(native.out.splitlines()) > 100
    assert remote.out.splitlines() == native.out.splitlines()


def test_values_of_index_put_on_the_processor_are_refused(torch_server: Server) -> None:
    """As CUDA's kernel does; a processor alone cannot show it."""
    lines = run(VALUES_ON_THE_PROCESSOR, "remote", torch_server).out.splitlines()
    assert all(line.startswith("Expected all tensors to be on the same device") for line in lines[:2]), lines
    assert lines[2] == "[3.0, 3.0, 0.0, 0.0, 0.0] [3.0, 3.0]"
