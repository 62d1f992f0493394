"""Own functions with own gradients, hooks on tensors and modules, gradients of gradients, parts that are cut off."""

import torch
from report import DEVICE, bits, loss, weights
from torch import nn
from torch.autograd.function import once_differentiable


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, given):
        (x,) = ctx.saved_tensors
        return given * ((x >= ctx.low) & (x <= ctx.high)) + 0.01 * given, None, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, steps):
        return (x * steps).round() / steps

    @staticmethod
    @once_differentiable
    def backward(ctx, given):
        assert ctx.needs_input_grad == (True, False)
        return given, None


class Product(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, one, two):
        x, y = ctx.saved_tensors
        zero = torch.zeros_like(x)
        return (zero if one is None else one * y) + (zero if two is None else two), zero if one is None else one * x


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6)).to(DEVICE)
seen = []
model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach().abs().mean()))
model[2].register_full_backward_hook(lambda module, inside, outside: (inside[0] * 0.5,))
model[0].weight.register_hook(lambda slope: slope.clamp(-0.1, 0.1))
model[2].weight.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(2), None)[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(5, 4, 6):
    x = x.to(DEVICE)
    one, two = Product.apply(Clamped.apply(model(x), -0.5, 0.5), Rounded.apply(model(x), 8))
    value = (one * two).sum()
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    loss(value)
bits(*seen)
weights(model)
x = torch.randn(5, dtype=torch.float64).to(DEVICE).requires_grad_()
assert torch.autograd.gradcheck(lambda y: Product.apply(y, y.sin())[0], (x,))
assert torch.autograd.gradgradcheck(lambda y: (y.exp() * y).sum(), (x,))
(slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
bits(slope, *torch.autograd.grad(slope.sum(), x))
with torch.autograd.graph.save_on_cpu():
    value = (x.sin() * x.cos()).sum()
value.backward()
bits(x.grad)
with torch.autograd.set_detect_anomaly(True):
    torch.relu(x).sum().backward()
bits(x.grad)
y = torch.ones(3, device=DEVICE, requires_grad=True)
z = y * 2
z[1:].mul_(3)
z.sum().backward()
bits(y.grad)
