"""Half precision where it is safe, a scaled loss, a step that is left out because its gradients are not finite."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10)).to(DEVICE)
images, labels = torch.randn(6, 4, 3, 16, 16), torch.randint(0, 10, (6, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**12, growth_interval=2)
for number, (x, y) in enumerate(zip(images, labels, strict=True)):
    x, y = x.to(DEVICE), y.to(DEVICE)
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.float16):
        out = model(x)
        assert out.dtype == torch.float16
        assert torch.is_autocast_enabled(DEVICE)
    value = F.cross_entropy(out.float(), y)
    scaler.scale(value * (float("inf") if number == 3 else 1.0)).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    loss(value)
    loss(scaler.get_scale())
    loss(norm)
with torch.autocast(DEVICE, dtype=torch.bfloat16):
    loss(model(images[0].to(DEVICE)).float().sum())
half = nn.Linear(10, 10).to(DEVICE, torch.bfloat16)
loss(half(torch.ones(2, 10, device=DEVICE, dtype=torch.bfloat16)).float().sum())
weights(model)
