"""A small GPT: attention with a causal mask, tied weights, dropout, AdamW, clipping, activations computed twice."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, WORDS, LENGTH = 64, 4, 100, 24


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_one, self.norm_two = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.ask, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.ask(self.norm_one(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.wide(self.norm_two(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        y = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for number, block in enumerate(self.blocks):
            y = checkpoint(block, y, use_reentrant=False) if number == 1 else block(y)
        return self.head(y)


torch.manual_seed(0)
model = Model().to(DEVICE)
text = torch.randint(0, WORDS, (8, 4, LENGTH + 1))
decayed = [p for p in model.parameters() if p.dim() > 1]
plain = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
torch.manual_seed(1)
for batch in text:
    batch = batch.to(DEVICE, non_blocking=True)
    value = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    loss(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    optimizer.step()
    warm.step()
    loss(value)
weights(model)
