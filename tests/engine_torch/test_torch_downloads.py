"""Downloads: straight to where they belong, in large pages where that is new memory, with the device's bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.torch_engine import run, same_bits

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FAULTS = """
import resource, torch
there = torch.arange(16 << 20, dtype=torch.int32).cuda()  # 64 MiB
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
small = there[:1024].cpu()
counts = []
for late in (False, True):
    there.add_(1)
    before = faults()
    if late:
        made = torch.empty(16 << 20, dtype=torch.int32, pin_memory=True)
        made.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
    else:
        made = there.cpu()
    counts.append(faults() - before)
    assert torch.equal(made, torch.arange(16 << 20, dtype=torch.int32) + 1 + late)
print(counts)
"""


@pytest.mark.skipif(not THP.exists() or "[never]" in THP.read_text(), reason="this machine's kernel has no large pages")
def test_new_memory_for_a_download_has_large_pages(torch_server: Server) -> None:
    """Waited for, and in the background. By pages of 4 KiB each is 16,384 faults, more time than the copy takes."""
    assert max(run(FAULTS, "remote", torch_server).result()) < 4000


PLACES = """
import sys
sys.path.insert(0, PROGRAMS)
import numpy, torch
from report import DEVICE, bits
torch.manual_seed(0)
PINS = torch.cuda.is_available()
source = torch.randint(-128, 128, ((12 << 20) + 7,), dtype=torch.int8)
there = source.to(DEVICE)
for begin, count in ((0, 4 << 20), (1, (4 << 20) - 1), (4093, (8 << 20) + 5), (0, (12 << 20) + 7), ((12 << 20) + 6, 1)):
    bits(there[begin : begin + count].cpu())  # new memory
around = torch.full((20 << 20,), 7, dtype=torch.int8)  # memory that was written to, and more beside
around[5 : 5 + len(source)].copy_(there)
bits(around)
half = torch.empty(32 << 20, dtype=torch.int8)  # its beginning was written to, the rest is new
half[: 3 << 20] = 1
half[2 << 20 : (2 << 20) + len(source)].copy_(there)
half[(2 << 20) + len(source) :] = 2
bits(half)
foreign = numpy.full(len(source), 3, dtype=numpy.int8)  # another library's
torch.from_numpy(foreign).copy_(there)
bits(torch.from_numpy(foreign))
pinned = torch.empty(len(source), dtype=torch.int8, pin_memory=PINS)
pinned.copy_(there, non_blocking=True)
there.add_(1)  # after the copy
if PINS:
    torch.cuda.synchronize()
bits(pinned, there)
"""


def test_downloads_have_the_bits_wherever_they_go(tmp_path: Path, torch_server: Server) -> None:
    """Parts, odd lengths and offsets, new, old and half new memory, another library's, pinned and not waited for."""
    program = tmp_path / "program.py"
    programs = Path(__file__).parents[1] / "torch_programs"
    program.write_text(f"PROGRAMS = {str(programs)!r}\n{PLACES}")
    same_bits(program, torch_server)


WHILE = """
import torch
x = torch.ones(1000, 1000, device="cuda")
for _ in range(4):  # some time, in which the memory for the result is made
    x = x @ x / 1000
there = (torch.arange(4 << 20, device="cuda") + x[0, 0]).cpu()
assert torch.equal(there, torch.arange(4 << 20) + torch.ones(()))
print("loss", float(there[-1]).hex())
"""


def test_memory_that_is_made_while_the_device_computes_takes_what_it_gives(torch_server: Server) -> None:
    assert len(run(WHILE, "remote", torch_server).losses) == 1
