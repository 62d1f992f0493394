"""A program of the engine `torch` that is run by verbs and by TCP, on this machine and between virtual machines."""

from __future__ import annotations

from tests.support.engine_verbs import TCP_BYTES

MIB = 1 << 20
UP = 8 * MIB
#: Uploads, downloads, and both at once, of more than the rings hold; a forked child; steps whose losses are read. The
#: last line: whether all came back, and bytes of its TCP connections.
PROGRAM = f"""
import json, os, torch
{TCP_BYTES}
torch.manual_seed(3)
on = "cuda" if torch.cuda.is_available() else "cpu"
print("device", on)
data = torch.randint(0, 256, ({UP},), dtype=torch.uint8)
there = data.to(on, copy=True)
for _ in range(40): there += 1
back = torch.empty_like(data)
back.copy_(there, non_blocking=True)
second = data.flip(0).to(on)
if on == "cuda": torch.cuda.synchronize()
same = bool((back == data + 40).all()) and bool((second.cpu().flip(0) == data).all())
pinned = torch.randn(1 << 20)
if on == "cuda": pinned = pinned.pin_memory()
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(on)
steps = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for _ in range(6):
    loss = net(pinned.to(on, non_blocking=True).view(-1, 64)).square().mean()
    steps.zero_grad(); loss.backward(); steps.step()
    print("loss", loss.item().hex())
print(json.dumps([same, sum(tcp_bytes())]))
"""
