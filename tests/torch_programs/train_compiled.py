"""Training with attention, by torch.compile where it is on a leased GPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, HEADS, WORDS = 32, 4, 40


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp(x)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), Layer(), Layer(), nn.Linear(WIDTH, WORDS)).to(DEVICE)
run = torch.compile(model) if DEVICE == "cuda" else model
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
text = torch.randint(0, WORDS, (2, 13)).to(DEVICE)
print("device", DEVICE)
for step in range(8):
    seen = text if step < 6 else text[:, :9]  # the last ones have other sizes
    loss = functional.cross_entropy(run(seen[:, :-1]).reshape(-1, WORDS), seen[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item().hex())
