"""Training that is kept in a file, goes on in another model, and gives what it would have given without a break."""

import io
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from report import DEVICE, bits, loss, weights
from torch import nn


def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)


def steps(parts, data):
    model, optimizer, schedule = parts
    for x, y in data:
        optimizer.zero_grad()
        value = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
        value.backward()
        optimizer.step()
        schedule.step()
        loss(value)


random.seed(0)
torch.manual_seed(0)
data = [(torch.randn(16, 10), torch.randint(0, 2, (16,))) for _ in range(8)]
state = torch.cuda.get_rng_state if DEVICE == "cuda" else torch.get_rng_state
restore = torch.cuda.set_rng_state if DEVICE == "cuda" else torch.set_rng_state
whole = made(3)
torch.manual_seed(4)
steps(whole, data[:4])
kept = {"model": whole[0].state_dict(), "optimizer": whole[1].state_dict(), "schedule": whole[2].state_dict()}
torch.save({**kept, "random": state(), "step": 4}, "checkpoint.pt")
steps(whole, data[4:])
read = torch.load("checkpoint.pt", weights_only=True)
assert read["model"]["0.weight"].device.type == DEVICE
plain = torch.load("checkpoint.pt", map_location="cpu", weights_only=True)
assert plain["model"]["0.weight"].device.type == "cpu"
again = made(9)
for part, name in zip(again, kept, strict=True):
    part.load_state_dict(read[name])
restore(read["random"].cpu())
steps(again, data[4:])
weights(whole[0])
weights(again[0])
assert all(torch.equal(one, other) for one, other in zip(whole[0].parameters(), again[0].parameters(), strict=True))
memory = io.BytesIO()
torch.save(again[0], memory)
memory.seek(0)
weights(torch.load(memory, weights_only=False))
moved = torch.load("checkpoint.pt", map_location=torch.device(DEVICE), mmap=True, weights_only=True)
bits(*moved["model"].values())
Path("checkpoint.pt").unlink()
