"""A decoder with a static cache, by torch.compile where it is on a leased GPU; prints each token's logits as losses."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, WIDTH, HEADS, WORDS = 24, 32, 4, 48


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))

    def forward(self, x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(1, 1, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        seen = functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(1, 1, WIDTH))
        return x + self.mlp(self.after(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.register_buffer("places", torch.arange(LENGTH))

    def forward(self, word: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        mask = (self.places <= at)[None, None, None]
        x = self.words(word)
        for layer in self.layers:
            x = layer(x, at, mask)
        return self.head(x)


torch.manual_seed(0)
model = Decoder().to(DEVICE).eval()
step = torch.compile(model, mode="reduce-overhead", fullgraph=True) if DEVICE == "cuda" else model
print("device", DEVICE)
with torch.no_grad():
    word, at = torch.tensor([[1]], device=DEVICE), torch.tensor([0], device=DEVICE)
    for _ in range(LENGTH):
        logits = step(word, at)
        word = logits[:, -1:].argmax(-1)
        at += 1
        print("loss", logits.sum().item().hex(), word.item())
