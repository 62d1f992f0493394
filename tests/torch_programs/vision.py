"""A residual network with batch normalisation on its input, momentum, a schedule of the rate, and accuracies."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.one = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm_one = nn.BatchNorm2d(outside)
        self.two = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm_two = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)), inplace=True)
        return F.relu(self.norm_two(self.two(y)) + self.short(x))


torch.manual_seed(0)
model = nn.Sequential(
    nn.BatchNorm2d(3), nn.Conv2d(3, 8, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(8, 8), Block(8, 16, 2),
    nn.InstanceNorm2d(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10),
).to(DEVICE)  # fmt: skip
images, labels = torch.randn(6, 8, 3, 32, 32), torch.randint(0, 10, (6, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
torch.manual_seed(1)
for x, y in zip(images, labels, strict=True):
    x, y = x.to(DEVICE), y.to(DEVICE)
    x = torch.flip(x, [3]) if y[0] % 2 else F.pad(x, (2, 2, 2, 2), mode="reflect")[:, :, 1:33, 3:35]
    optimizer.zero_grad()
    out = model(x.to(memory_format=torch.channels_last))
    value = F.cross_entropy(out, y, label_smoothing=0.1)
    value.backward()
    optimizer.step()
    schedule.step()
    loss(value)
    loss(out.topk(3, 1).indices.eq(y[:, None]).any(1).float().mean())
model.eval()
with torch.no_grad():
    loss(model(images[0].to(DEVICE)).softmax(1).max())
weights(model)
