"""Uploads that are sent ahead, or as bytes with tables: the bits are native's, and counters say that it was so."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.torch_engine import ended, go_on, line, run, same_bits, server, start

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

#: Before and after a program: `count()` prints the client's counters, natively {}.
BEGIN = """
import json, sys
sys.path.insert(0, PROGRAMS)
import torch
from report import DEVICE, bits, loss
from torch import nn
PINS = torch.cuda.is_available()
def pin(tensor): return tensor.pin_memory() if PINS else tensor
def statistics():
    try:
        from elastic_ai_torch import start
    except ImportError:
        return {}
    return start.statistics()
torch.manual_seed(0)
torch.zeros(1, device=DEVICE)
"""
END = "\nprint(json.dumps(statistics()))\n"


def both(folder: Path, on: Server, text: str) -> dict[str, Any]:
    """Runs the text natively and by the engine, with equal bits: the client's counters."""
    program = folder / "program.py"
    programs = Path(__file__).parents[1] / "torch_programs"
    program.write_text(f"PROGRAMS = {str(programs)!r}\n{BEGIN}{text}{END}")
    ran = same_bits(program, on)["remote"].result()
    assert isinstance(ran, dict)
    return ran


LOOP = """
from torch.utils.data import DataLoader, TensorDataset
images, labels = torch.randn(48, 3, 64, 64), torch.randint(0, 5, (48,))  # 8 images are 384 KiB
model = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(900, 5)).to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for workers in (0, 2):
    for x, y in DataLoader(TensorDataset(images, labels), 8, pin_memory=PINS, num_workers=workers):
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(model(x.to(DEVICE, non_blocking=True)), y.to(DEVICE))
        value.backward()
        optimizer.step()
        loss(value)
"""


def test_batches_that_a_loader_pins_are_sent_before_the_loop_asks(tmp_path: Path, torch_server: Server) -> None:
    """All twelve of an unchanged loop, in this process and from workers."""
    counts = both(tmp_path, torch_server, LOOP)
    assert counts["sent_ahead"] == counts["ahead_used"] == 12


CHANGED = """
x = pin(torch.randn(64, 1024))
x.mul_(2)  # by torch
bits(x.to(DEVICE))
x = pin(torch.randn(64, 1024))
x.numpy()[63, 1023] = 7  # by another library, in its last number
bits(x.to(DEVICE))
x = pin(torch.randn(64, 1024))
x[3:4].view(-1)[5:6].fill_(float("nan"))  # by a view
bits(x.to(DEVICE))
x = pin(torch.zeros(64, 1024))
x[0, 0] = -0.0  # equal as a number, other bits
bits(x.to(DEVICE))
"""


def test_pinned_memory_that_changed_since_is_sent_as_it_is(tmp_path: Path, torch_server: Server) -> None:
    """By whatever it was changed, for the bytes are compared."""
    counts = both(tmp_path, torch_server, CHANGED)
    assert (counts["sent_ahead"], counts["ahead_used"]) == (4, 0)


WAYS = """
x = pin(torch.randn(64, 1024))
there = x.to(DEVICE, copy=True)
bits(there)
x.add_(1)
bits(there)  # the copy is its own
bits(x.to(DEVICE))  # and a second one is sent again
target = torch.zeros(65, 1024, device=DEVICE)
x = pin(torch.randn(64, 1024))
target[1:].copy_(x)  # into a part of something older
bits(target)
x = pin(torch.randn(64, 1024))
bits(x[:32].to(DEVICE), x.t().to(DEVICE), x.double().to(DEVICE))  # not what was sent: sent anew
x = pin(torch.randn(64, 1024))
del x
x = pin(torch.randn(64, 1024))  # perhaps where the first one lay
bits(x.to(DEVICE))
x = pin(torch.arange(65536, dtype=torch.int64))
bits(x.to(DEVICE), x.to(DEVICE, torch.int32))
"""


def test_what_was_sent_ahead_is_used_once_and_only_whole(tmp_path: Path, torch_server: Server) -> None:
    """Parts, other layouts and types are uploads of their own; what is freed or used is forgotten."""
    counts = both(tmp_path, torch_server, WAYS)
    assert (counts["sent_ahead"], counts["ahead_used"]) == (6, 4)


MANY = """
held = [pin(torch.full((16, 1024, 1024), number / 3)) for number in range(8)]  # 64 MiB each
for one in held:
    bits(one[15, :8].to(DEVICE))
bits(held[0].to(DEVICE)[15, :8], held[7].to(DEVICE)[15, :8])
"""


def test_what_is_ahead_has_a_bound(tmp_path: Path, torch_server: Server) -> None:
    """Of 512 MiB the oldest half is dropped, at the server too; a dropped one is sent again."""
    counts = both(tmp_path, torch_server, MANY)
    assert (counts["sent_ahead"], counts["ahead_used"]) == (8, 1)


KEPT = """
import sys, torch
for _ in range(3):
    x = torch.randn(16, 1024, 1024).pin_memory()  # 64 MiB
    y = x.cuda(non_blocking=True)
    torch.cuda.synchronize()
del y
print("used", flush=True)
sys.stdin.readline()
torch.cuda.empty_cache()
torch.cuda.synchronize()
print("emptied", flush=True)
sys.stdin.readline()
"""


def test_what_a_server_keeps_for_the_next_batch_is_given_back_when_asked(tmp_path: Path) -> None:
    """`torch.cuda.empty_cache()` reaches the server."""

    def resident_mib() -> int:
        status = Path(f"/proc/{on.children()[0]}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) >> 10

    with server(tmp_path) as on:
        program = start(KEPT, "remote", on)
        line(program, "used")
        before = resident_mib()
        go_on(program)
        line(program, "emptied")
        assert before - resident_mib() > 60
        go_on(program)
        assert ended(program).code == 0


def test_a_worker_that_was_forked_sends_nothing(torch_server: Server) -> None:
    """Pinning is the parent's, though the child has its library."""
    text = """
import os, torch
from elastic_ai_torch import start
torch.zeros(1, device="cuda").item()
if not os.fork():
    sent = 1
    try:
        torch.randn(64, 1024).pin_memory()
        sent = start.statistics()["sent_ahead"]
    finally:
        os._exit(sent)
assert os.wait()[1] == 0, "the child would send"
x = torch.randn(64, 1024).pin_memory()
assert torch.equal(x.cuda().cpu(), x)
print("loss", float(x[0, 0]).hex())
"""
    assert len(run(text, "remote", torch_server).losses) == 1


IMAGES = """
def images(*shape, dtype=torch.float32, channel=1):
    # As a loader makes them: bytes, scaled, normalised for each channel.
    raw = torch.randint(0, 256, shape, dtype=torch.uint8).float() / 255
    size = [1] * len(shape)
    size[channel] = shape[channel]
    mean, deviation = torch.rand(size), torch.rand(size) + 0.5
    return ((raw - mean) / deviation).to(dtype)
x = images(4, 3, 96, 96)
bits(x.to(DEVICE), images(3, 160, 160, channel=0).to(DEVICE), images(4, 96, 96, 3, channel=3).to(DEVICE))
bits(images(32, 784 * 2).round(decimals=1).to(DEVICE), images(4, 3, 160, 160, dtype=torch.bfloat16).to(DEVICE))
bits(images(4, 3, 160, 160, dtype=torch.float16).to(DEVICE), torch.zeros(70000).to(DEVICE))
target = torch.zeros(6, 3, 96, 96, device=DEVICE)
target[1:5].copy_(x)
bits(target)
"""


#: NaN of three payloads and both zeros are told apart by their bits, not as numbers.
SPECIAL = """
palette = torch.tensor([0x7FC00001, 0x7F800001, -1, -0x80000000, 0, 0x7F800000, 1, 0x3F800000], dtype=torch.int64)
palette = palette.to(torch.int32).view(torch.float32)  # NaN of three payloads, both zeros, infinity, the least number
x = palette[torch.randint(0, 8, (2, 3, 128, 128))]
there = x.to(DEVICE)
bits(there.view(torch.int32))
assert torch.equal(there.cpu().view(torch.int32), x.view(torch.int32))
"""


@pytest.mark.parametrize("options", [[], ["--like-cuda", "1"]], ids=["processor", "operators as on a GPU"])
def test_images_go_as_bytes_and_come_back_to_the_bit(tmp_path: Path, torch_server: Server, options: list[str]) -> None:
    """Channels first, last and none, of three types, whole and into a part; a quarter (half) of the bytes is sent."""
    with ExitStack() as stack:
        on = stack.enter_context(server(tmp_path / "server", *options)) if options else torch_server
        counts = both(tmp_path, on, IMAGES + SPECIAL)
    assert counts["packed_uploads"] == 9
    assert counts["bytes_up"] / 2 > counts["bytes_sent"]


UNFIT = """
x = (torch.randint(0, 256, (2, 3, 128, 128)).float() - 7) / 255
x[1, 2, 127, 127] = 0.1234567  # one more value than a byte tells, in the last place of all
x[1, 2].view(-1)[:256] = (torch.arange(256).float() - 7) / 255
bits(x.to(DEVICE))
bits(torch.randn(2, 3, 128, 127).to(DEVICE), torch.randn(2, 3, 128, 127).double().to(DEVICE))
bits(torch.arange(65536).to(DEVICE))
x = (torch.randint(0, 256, (2, 3, 128, 128)).float() - 7) / 255
bits(x.to(DEVICE))  # a shape that did not fit is not tried again
"""


def test_other_floats_are_sent_as_they_are(tmp_path: Path, torch_server: Server) -> None:
    """257 values in a channel, drawn floats, doubles, integers."""
    assert both(tmp_path, torch_server, UNFIT)["packed_uploads"] == 0


AHEAD = """
from torch.utils.data import DataLoader, TensorDataset
images = (torch.randint(0, 256, (24, 3, 96, 96)).float() / 255 - 0.45) / 0.22
for (x,) in DataLoader(TensorDataset(images), 4, pin_memory=PINS):
    bits(x.to(DEVICE, non_blocking=True))
x = pin(images[:4])
x.mul_(2)
bits(x.to(DEVICE))
"""


def test_images_are_sent_ahead_as_bytes(tmp_path: Path, torch_server: Server) -> None:
    """Both at once; one that changed since is sent again, and still as bytes."""
    counts = both(tmp_path, torch_server, AHEAD)
    assert (counts["sent_ahead"], counts["ahead_used"], counts["packed_uploads"]) == (7, 6, 7)
