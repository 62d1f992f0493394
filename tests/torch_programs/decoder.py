"""The tiny decoder of suite training, by the very code that the suite runs: its model, weights and tokens."""

import sys
from pathlib import Path

import torch
from report import DEVICE, loss, weights

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from validation.probes import train_decoder
from validation.probes.train_decoders import DECODERS, TINY

SEQUENCES, STEPS = 8, 40
shape = DECODERS[TINY]
model = train_decoder.build(torch, shape, torch.device(DEVICE), again=shape.sharded)
optimizer = torch.optim.AdamW(model.parameters(), lr=shape.rate, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(STEPS):
    given = train_decoder.tokens(torch, torch.arange(SEQUENCES, dtype=torch.int64), shape.context, step).to(DEVICE)
    optimizer.zero_grad()
    made = model(given[:, :-1])
    value = torch.nn.functional.cross_entropy(made.float().flatten(0, 1), given[:, 1:].flatten())
    value.backward()
    optimizer.step()
    loss(value.item())
weights(model)
