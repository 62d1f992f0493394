"""What a real GPU does otherwise than a processor: cuDNN's recurrent networks with dropout, tensors of zeros without
memory, pinned and packed uploads, copies down that do not wait, losses of CTC. Prints bits of every result.

    gpu_details.py      on a machine with a GPU natively, or by the engine; fails where there is none
"""

import torch
import torch.nn.functional as F
from report import DEVICE, bits, loss, weights
from torch import nn

torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.deterministic = True


def recurrent(kind: type[nn.RNNBase], dropout: float, packed: bool) -> None:
    """Four steps of training through cuDNN, whose room for the backward depends on dropout."""
    torch.manual_seed(4)
    model = kind(12, 10, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 7, 12).to(DEVICE)
    lengths = torch.tensor([7, 6, 4, 4, 1])
    for _ in range(4):
        given = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True) if packed else x
        y = model(given)[0]
        data = y.data if packed else y
        optimizer.zero_grad()
        value = data.pow(2).mean()
        value.backward()
        optimizer.step()
        loss(value)
    model.eval()
    bits(model(x)[0])
    weights(model)


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    for dropout in (0.0, 0.3):
        for packed in (False, True):
            print("part", kind.__name__, dropout, packed, flush=True)
            recurrent(kind, dropout, packed)

print("part zeros", flush=True)
zeros = torch._efficientzerotensor((3, 4), device=DEVICE)
bits(zeros + torch.ones(3, 4, device=DEVICE), zeros * 2)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True).to(DEVICE)
out = layer(torch.randn(2, 5, 16).to(DEVICE))
out.sum().backward()
bits(out, *(p.grad for p in layer.parameters()))

print("part uploads", flush=True)
for shape in ((8, 3, 64, 64), (32, 3, 224, 224), (1 << 22,), (3, 5)):
    floats = torch.randn(shape)
    images = torch.randint(0, 256, shape, dtype=torch.uint8).float() / 255
    normal = (images - 0.5) / 0.25
    for one in (floats, images, normal, normal.half(), images.byte()):
        pinned = one.pin_memory()
        there = pinned.to(DEVICE, non_blocking=True)
        again = pinned.to(DEVICE, non_blocking=True)
        bits(there, again, one.to(DEVICE), one.to(DEVICE).flatten()[1:])
        pinned.zero_()
        torch.cuda.synchronize()
        back = torch.empty_like(one).pin_memory()
        event = torch.cuda.Event()
        back.copy_(there, non_blocking=True)
        event.record()
        event.synchronize()
        assert torch.equal(back, one), "what came back is not what was sent"

print("part ctc", flush=True)
logits = torch.randn(50, 4, 20).to(DEVICE).requires_grad_()
targets = torch.randint(1, 20, (4, 15))
for where in ("cpu", DEVICE):
    value = F.ctc_loss(logits.log_softmax(2), targets.to(where), torch.full((4,), 50), torch.full((4,), 15))
    loss(value.detach())
for form in (torch.channels_last, torch.contiguous_format):
    norm = nn.BatchNorm2d(8).to(DEVICE, memory_format=form)
    image = torch.randn(4, 8, 16, 16).to(DEVICE, memory_format=form).requires_grad_()
    out = norm(image)
    out.pow(2).sum().backward()
    bits(out, image.grad, norm.running_var)
    assert out.stride() == image.stride()
