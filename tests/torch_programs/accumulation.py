"""Gradients over several batches, an average of the weights, other optimisers, parameters that are frozen and freed."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn

MADE = {
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "adam fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2, foreach=False),
    "adamax one by one": lambda p: torch.optim.Adamax(p, lr=1e-2, foreach=False),
    "rprop": lambda p: torch.optim.Rprop(p),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.5, foreach=True),
}
torch.manual_seed(0)
data, wanted = torch.randn(8, 16, 10), torch.randn(8, 16, 1)
for number, make in enumerate(MADE.values()):
    torch.manual_seed(number)
    model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 1)).to(DEVICE)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = make(model.parameters())
    for step, (x, y) in enumerate(zip(data, wanted, strict=True)):
        value = F.mse_loss(model(x.to(DEVICE)), y.to(DEVICE)) / 4
        value.backward()
        if step % 4 == 3:
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            loss(value)
    weights(model)
    weights(average)
model[0].requires_grad_(False)
optimizer = torch.optim.LBFGS(model[2].parameters(), max_iter=4, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    value = F.huber_loss(model(data[0].to(DEVICE)), wanted[0].to(DEVICE))
    value.backward()
    return value


for _ in range(3):
    loss(optimizer.step(closure))
weights(model)
