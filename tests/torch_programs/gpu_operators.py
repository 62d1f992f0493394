"""Modules that take operators which torch has for GPUs alone; prints what the values and gradients come to."""

import torch

torch.manual_seed(1)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"


def tell(name, *tensors):
    """The sum of their magnitudes, exactly."""
    for at, one in enumerate(tensors):
        value = one.detach().double().abs().sum().item()
        print(f"loss {value.hex()} {name} {at}")


for name, cell in (("lstm", torch.nn.LSTMCell(5, 7)), ("gru", torch.nn.GRUCell(5, 7)), ("rnn", torch.nn.RNNCell(5, 7))):
    x, h, c = torch.randn(4, 5), torch.randn(4, 7), torch.randn(4, 7)
    cell = cell.to(device)
    x, h, c = (t.to(device).requires_grad_() for t in (x, h, c))
    out = cell(x, (h, c)) if name == "lstm" else (cell(x, h), c)
    (out[0] * 2 + out[1].sin()).sum().backward()
    tell(name, *out, x.grad, h.grad, c.grad, *(p.grad for p in cell.parameters()))

x = torch.randn(6, 9).half()
x = x.to(device).requires_grad_()
for name, soft in (("softmax", torch.nn.functional.softmax), ("log_softmax", torch.nn.functional.log_softmax)):
    out = soft(x, dim=1, dtype=torch.float32)
    x.grad = None
    (out * out).sum().backward()
    assert out.dtype == torch.float32
    assert x.grad.dtype == torch.float16
    tell(name, out, x.grad)

for causal in (False, True):
    q, k, v = (torch.randn(2, 3, 8, 16).to(device).requires_grad_() for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    out.pow(2).sum().backward()
    tell(f"attention {causal}", out, q.grad, k.grad, v.grad)
