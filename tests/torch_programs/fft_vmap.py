"""Fourier transforms, batches made by vmap, jacobians and hessians, complex numbers, linear algebra."""

import torch
from report import DEVICE, bits, loss
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

torch.manual_seed(0)
wave = torch.randn(4, 64).to(DEVICE)
filters = nn.Parameter(torch.randn(33, dtype=torch.complex64).to(DEVICE))
optimizer = torch.optim.Adam([filters], lr=0.05)
for _ in range(4):
    made = torch.fft.irfft(torch.fft.rfft(wave) * filters, n=64)
    value = (made - wave.roll(3, 1)).square().mean() + filters.abs().mean() * 0.01
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    loss(value)
bits(filters, torch.fft.fftshift(torch.fft.fft2(wave)), torch.fft.ifftn(wave[None].to(torch.complex64), dim=(1, 2)))
spectrum = torch.stft(wave, 16, 8, window=torch.hann_window(16, device=DEVICE), return_complex=True)
bits(
    spectrum,
    torch.istft(spectrum, 16, 8, window=torch.hann_window(16, device=DEVICE)),
    spectrum.angle(),
    spectrum.conj(),
)
model = nn.Sequential(nn.Linear(5, 8), nn.Softplus(), nn.Linear(8, 1)).to(DEVICE)
named = {name: value.detach() for name, value in model.named_parameters()}


def single(values, x, y):
    return (functional_call(model, values, x[None]).squeeze() - y).square()


x, y = torch.randn(6, 5).to(DEVICE), torch.randn(6).to(DEVICE)
bits(*vmap(grad(single), in_dims=(None, 0, 0))(named, x, y).values())


def plain(row):
    return functional_call(model, named, row[None]).tanh().squeeze()


bits(jacrev(plain)(x[0]), jacfwd(plain)(x[0]), hessian(plain)(x[0]), vmap(jacrev(plain))(x), vmap(hessian(plain))(x))
out, back = vjp(plain, x[1])
bits(out, *back(torch.ones_like(out)), *jvp(plain, (x[1],), (torch.ones(5, device=DEVICE),)))
several = [nn.Linear(5, 3).to(DEVICE) for _ in range(4)]
stacked, _ = stack_module_state(several)
bits(vmap(lambda values, row: functional_call(several[0], values, row), in_dims=(0, None))(stacked, x))
torch.manual_seed(2)
bits(vmap(lambda row: torch.randn(3, device=DEVICE) + row.sum(), randomness="different")(x) * 0)
torch.manual_seed(1)
square = torch.randn(3, 6, 6, dtype=torch.float64).to(DEVICE)
whole = square @ square.mT + 6 * torch.eye(6, device=DEVICE, dtype=torch.float64)
bits(
    torch.linalg.cholesky(whole),
    torch.linalg.solve(whole, square),
    torch.linalg.det(square),
    torch.linalg.eigvalsh(whole),
)
values = torch.linalg.svdvals(square)
bits(values, *torch.linalg.qr(square), torch.linalg.inv(whole), torch.linalg.matrix_exp(square / 9))
whole.requires_grad_()
torch.logdet(whole).sum().backward()
bits(whole.grad, torch.einsum("bij,bjk,kl->il", square, square, square[0]))
