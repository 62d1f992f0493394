"""A generator against a discriminator: transposed convolutions, spectral norm, a penalty differentiated twice."""

import torch
import torch.nn.functional as F
from report import DEVICE, loss, weights
from torch import nn

torch.manual_seed(0)
maker = nn.Sequential(
    nn.ConvTranspose2d(8, 16, 4, 1, 0), nn.BatchNorm2d(16), nn.ReLU(True),
    nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Tanh(),
).to(DEVICE)  # fmt: skip
judge = nn.Sequential(
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2),
    nn.GroupNorm(2, 8), nn.Conv2d(8, 1, 8),
).to(DEVICE)  # fmt: skip
images = torch.rand(5, 4, 3, 16, 16) * 2 - 1
noise = torch.randn(5, 4, 8, 1, 1)
first = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
second = torch.optim.RMSprop(judge.parameters(), lr=2e-4)
torch.manual_seed(1)
for real, z in zip(images, noise, strict=True):
    real, z = real.to(DEVICE), z.to(DEVICE)
    made = maker(z)
    ones, zeros = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    wrong = F.binary_cross_entropy_with_logits(judge(made.detach()).flatten(), zeros)
    right = F.binary_cross_entropy_with_logits(judge(real).flatten(), ones)
    part = torch.rand(4, 1, 1, 1, device=DEVICE)
    between = (part * real + (1 - part) * made.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
    penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    second.zero_grad()
    (wrong + right + 10 * penalty).backward()
    second.step()
    fooled = F.binary_cross_entropy_with_logits(judge(made).flatten(), ones)
    first.zero_grad()
    fooled.backward()
    first.step()
    for value in (wrong, right, penalty, fooled):
        loss(value)
weights(maker)
weights(judge)
