"""A loop as libraries of trainers have it: data sets, samplers, accumulation, evaluation, early end, best weights."""

import copy
import math

import torch
from report import DEVICE, loss, weights
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, random_split


class Numbers(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        made = torch.Generator().manual_seed(i)
        ids = torch.randint(0, 64, (12,), generator=made)
        return {"ids": ids, "mask": torch.arange(12) < 6 + i % 7, "label": (ids.sum() % 3).long()}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.inside = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, 3)

    def forward(self, ids, mask, label=None):
        y = self.inside(self.words(ids), src_key_padding_mask=~mask)
        y = self.out((y * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return {"logits": y, "loss": None if label is None else nn.functional.cross_entropy(y, label)}


def moved(batch):
    return {key: value.to(DEVICE, non_blocking=True) for key, value in batch.items()}


torch.manual_seed(0)
train, test = random_split(Numbers(), [72, 24], generator=torch.Generator().manual_seed(1))
model = Model().to(DEVICE)
draws = torch.Generator().manual_seed(2)
loader = DataLoader(train, 8, sampler=RandomSampler(train, generator=draws), drop_last=True, generator=draws)
judged = DataLoader(test, 12, generator=torch.Generator().manual_seed(4))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 12))
torch.manual_seed(3)
best, kept, running, step = math.inf, None, torch.tensor(0.0, device=DEVICE), 0
for epoch in range(3):
    model.train()
    for number, batch in enumerate(loader):
        value = model(**moved(batch))["loss"]
        running += torch.where(torch.isnan(value) | torch.isinf(value), torch.zeros_like(value), value.detach())
        (value / 3).backward()
        if number % 3 == 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            model.zero_grad()
            step += 1
            if step % 2 == 0:
                loss(running.item() / 6)
                loss(norm)
                running -= running
    model.eval()
    total, right = 0.0, 0
    with torch.inference_mode():
        for batch in judged:
            out = model(**moved(batch))
            total += out["loss"].item()
            right += (out["logits"].argmax(-1) == batch["label"].to(DEVICE)).sum().item()
    loss(total)
    loss(right)
    if total < best:
        best, kept = total, copy.deepcopy(model.state_dict())
    elif epoch > 1:
        break
model.load_state_dict(kept)
weights(model)
