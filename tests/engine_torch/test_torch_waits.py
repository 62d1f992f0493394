"""How often a step waits for the server, for loops as programs have them: each wait costs a round trip.

Counted, not timed: the client says how often it waited, and WAITS says how often it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.torch_engine import run

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

BEGIN = """
import json, torch
from torch import nn
from elastic_ai_torch import start
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
scaler = torch.amp.GradScaler("cuda")
embedding, head = nn.Embedding(16, 8).cuda(), nn.Linear(8, 16).cuda()
text = torch.zeros(2, 1, dtype=torch.long, device="cuda")
kept = [torch.tensor(0.0).cuda(), torch.ones(2, dtype=torch.long, device="cuda")]
going, ends = [torch.ones(2, dtype=torch.long, device="cuda")], torch.tensor([99], device="cuda")
times, alphas = torch.tensor([3, 2, 1, 0]).cuda(), torch.linspace(1, 0, 1000).cuda()
def forward():
    global out
    optimizer.zero_grad()
    out = model(x.cuda())
    return nn.functional.cross_entropy(out, y.cuda())
def backward(loss):
    loss.backward()
    optimizer.step()
    return loss
def accuracy():
    return (out.argmax(1) == y.cuda()).sum()
def clipped(loss, strict=False):
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=strict)
    optimizer.step()
    return loss, norm
@torch.no_grad()
def token():
    global text
    found = head(embedding(text[:, -1])).argmax(-1)
    text = torch.cat([text[:, -8:], found[:, None]], 1)
    return found
"""
END = """
waits = {}
for name, body in LOOPS.items():
    exec(f"def step(number):\\n    {body}")
    for number in range(20):
        if number == 10:
            torch.cuda.synchronize()
            before = start.statistics()["waits"]
        step(number)
    waits[name] = (start.statistics()["waits"] - before) / 10
print(json.dumps(waits))
"""
#: A loop, and its waits in a step.
WAITS: dict[str, tuple[str, float]] = {
    "loss not read": ("backward(forward())", 0),
    "loss read": ("backward(forward()).item()", 1),
    "loss and accuracy": ("loss = backward(forward()); right = accuracy(); loss.item(); right.item()", 1),
    "loss, accuracy and norm": (
        "loss, norm = clipped(forward()); right = accuracy(); loss.item(); right.item(); float(norm)",
        1,
    ),
    "loss before accuracy": ("loss = backward(forward()); loss.item(); accuracy().item()", 2),
    "gradients clipped": ("clipped(forward())[0].item()", 1),
    "clipped, their norm read": ("loss, norm = clipped(forward()); loss.item(); norm.item()", 1),
    "clipped, an error if no number, loss and norm read": (
        "loss, norm = clipped(forward(), True); loss.item(); norm.item()",
        1,
    ),
    "scaled gradients": ("scaler.scale(forward()).backward(); scaler.step(optimizer); scaler.update()", 1),
    "scaled gradients, loss read": (
        "loss = forward(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); loss.item()",
        1,
    ),
    "scaled and clipped gradients, loss and norm read": (
        "loss = forward(); scaler.scale(loss).backward(); scaler.unscale_(optimizer); "
        "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0); "
        "scaler.step(optimizer); scaler.update(); loss.item(); norm.item()",
        1,
    ),
    "a trainer's filter of nan and inf": (
        "loss = backward(forward()).detach(); kept[0] += 0 if torch.isnan(loss) or torch.isinf(loss) else loss",
        1,
    ),
    "a token read": ("token()[0].item()", 1),
    "a token read, with texts that have ended": (
        "found = token(); kept[1] = kept[1] & (found != 99); assert kept[1].max() != 0; found[0].item()",
        1,
    ),
    "a token read, the end tested first": (
        "found = token(); going[0] = going[0] & ~torch.isin(found, ends); "
        "ended = going[0].max() == 0; bool(ended); found.tolist()",
        1,
    ),
    "steps of a schedule": (
        "t = times[number % 4]; before = t - 1; noise = (alphas[before] if before >= 0 else alphas[0]) * 2",
        0,
    ),
    "waited for, then loss read": ("loss = backward(forward()); torch.cuda.synchronize(); loss.item()", 1),
    "loss and how many there are": ("loss = backward(forward()); out[out > 0].numel(); loss.item()", 1),
    "an uploaded number read": ("t = torch.tensor([5, 3]).cuda(); t[0].item(); t[1].item()", 0),
}


def test_a_step_waits_so_often(torch_server: Server) -> None:
    """No more, and no less: a figure that got better is to be written here."""
    loops = {name: body for name, (body, _) in WAITS.items()}
    counted = run(f"{BEGIN}\nLOOPS = {loops!r}\n{END}", "remote", torch_server).result()
    assert counted == {name: waits for name, (_, waits) in WAITS.items()}
