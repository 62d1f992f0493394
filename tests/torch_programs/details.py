"""Details that programs meet, a line of JSON each, `[name, value]`: the same natively and by the engine."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def case(name: str, what: Callable[[], Any]) -> None:
    """Its value, or its error, with the words that torch warns of at this line."""
    torch.manual_seed(5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            value = what()
        except Exception as fault:  # whatever torch says
            value = f"{type(fault).__name__}: {fault}"
    words = [str(one.message).partition(" (Triggered internally")[0] for one in told]
    print(json.dumps([name, plain(value), words]))


def plain(value: Any) -> Any:
    """A tensor as its sizes, strides and bits."""
    if isinstance(value, torch.Tensor):
        bits = value.detach().cpu().contiguous().view(-1).double().tolist()
        return [list(value.shape), list(value.stride()), str(value.dtype), [one.hex() for one in bits]]
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def filled(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory for an `out=`."""
    return torch.full(sizes, 7, dtype=dtype, device=DEVICE)


ones, square = torch.ones(5, device=DEVICE), torch.arange(4.0, device=DEVICE).view(2, 2) + torch.eye(2, device=DEVICE)
last = (torch.arange(120.0).view(2, 3, 4, 5)).to(DEVICE).to(memory_format=torch.channels_last)
whole = torch.int64


def outs(count: int) -> None:
    """An `out=` of another size: with elements, which is warned of, or none."""
    case(f"add.{count}", lambda: torch.add(ones, 1, out=filled(count)))
    case(f"mm.{count}", lambda: torch.mm(square, square, out=filled(count)))
    case(f"sum.{count}", lambda: torch.sum(square, 0, out=filled(count)))
    case(f"sort.{count}", lambda: torch.sort(ones, out=(filled(count), filled(count, dtype=whole))))
    case(f"arange.{count}", lambda: torch.arange(0, 5, out=filled(count)))
    case(f"linspace.{count}", lambda: torch.linspace(0, 5, 6, out=filled(count)))
    case(f"eye.{count}", lambda: torch.eye(2, out=filled(count)))
    case(f"cat.{count}", lambda: torch.cat([last, last], out=filled(count)))
    case(f"qr.{count}", lambda: torch.linalg.qr(square, out=(filled(count), filled(count))))
    case(f"normal.{count}", lambda: torch.normal(torch.zeros(5, device=DEVICE), 1.0, out=filled(count)).shape)
    case(f"aminmax.{count}", lambda: torch.aminmax(square, dim=0, out=(filled(count), filled(count))))


outs(3)
outs(0)
for repeat in range(3):  # what was learned at the first use holds later
    case(f"qr.again.{repeat}", lambda: torch.linalg.qr(square, out=(filled(0), filled(0))))
    case(f"mm.again.{repeat}", lambda: torch.mm(square, square, out=filled(0)))
    case(f"std.{repeat}", lambda: torch.ones(1, device=DEVICE).std().shape)
case("std.dim", lambda: torch.ones(4, 1, device=DEVICE).std(1).shape)
for dimensions in (65, 255):
    many = torch.ones([1] * dimensions, device=DEVICE)
    case(f"dimensions.{dimensions}", lambda: [(many + 1).dim(), many.amax().item(), many.sum().item()])  # noqa: B023
for dtype in (torch.bfloat16, torch.float32):
    lstm, given = nn.LSTM(8, 8, 2, bidirectional=True), torch.arange(48.0).view(2, 3, 8).div(48)
    with torch.no_grad():
        for one in lstm.parameters():
            one.copy_(torch.arange(float(one.numel())).view_as(one).sin() / 3)
    lstm, given = lstm.to(DEVICE, dtype), given.to(DEVICE, dtype).requires_grad_()
    case(f"lstm.{dtype}", lambda: lstm(given)[0])  # noqa: B023
    case(f"lstm.gradient.{dtype}", lambda: torch.autograd.grad(lstm(given)[0].float().sum(), given))  # noqa: B023
with torch.autocast(DEVICE, torch.bfloat16):
    case("lstm.autocast", lambda: lstm(given)[0])


def drawn(fill: str, *numbers: float) -> None:
    """Numbers that a kernel refuses, or warns of, after some of that kind that it takes."""
    memory = torch.empty(3, device=DEVICE)
    for _ in range(3):
        getattr(memory, fill)(*(one / 4 for one in range(1, len(numbers) + 1)))
    case(f"numbers.{fill}", lambda: getattr(memory, fill)(*numbers).shape)


drawn("uniform_", 2, 1)
drawn("normal_", 0, -1)
drawn("bernoulli_", 2)
drawn("exponential_", -1)
drawn("geometric_", 2)
drawn("cauchy_", 0, -1)
drawn("log_normal_", 0, -1)
for first, after in ((0, 9), (1, 9), (2, 9), (5, 2), (0, 1 << 40)):
    case(f"numbers.random.{first}.{after}", lambda: torch.empty(3, device=DEVICE).random_(first, after).shape)  # noqa: B023


def late(name: str, call: Callable[[Any], Any], taken: Any, refused: Any) -> None:
    """A number that the kernel refuses, after one of its kind that it took often enough to be trusted."""
    for _ in range(3):
        call(taken)
    case(f"numbers.{name}", lambda: call(refused))


mask, first = torch.tensor([True, False, True], device=DEVICE), torch.tensor([0], device=DEVICE)
whole_numbers, matrix = torch.arange(3, device=DEVICE), torch.ones(3, 3, device=DEVICE)
for kind, small, large in (
    (torch.uint8, 3, 300), (torch.int32, 3, 1 << 40), (torch.float16, 3.0, -1e9), (torch.bfloat16, 3.0, 1e40),
    (torch.float32, 3.0, 1e40), (torch.float32, 3.0, -math.inf), (torch.complex64, 1j, 1e40j),
):  # fmt: skip
    of = torch.ones(3, dtype=kind, device=DEVICE)
    named = f"{kind}.{large}"
    late(f"fill.{named}", lambda n: of.clone().fill_(n), small, large)  # noqa: B023
    late(f"masked.{named}", lambda n: of.masked_fill(mask, n), small, large)  # noqa: B023
    late(f"index.{named}", lambda n: of.index_fill(0, first, n), small, large)  # noqa: B023
    late(f"full.{named}", lambda n: torch.full((3,), n, dtype=kind, device=DEVICE), small, large)  # noqa: B023
    late(f"where.{named}", lambda n: torch.where(mask, of, n), small, large)  # noqa: B023
    late(f"multiplied.{named}", lambda n: of * n, small, large)  # noqa: B023
    if not kind.is_complex:
        late(f"clamp.{named}", lambda n: of.clamp(n, n), small, large)  # noqa: B023
late("renorm", lambda n: matrix.renorm(n, 0, 1), 2, -1)
late("renorm.most", lambda n: matrix.renorm(2, 0, n), 1, -1)
late("huber", lambda n: F.huber_loss(matrix, matrix, delta=n), 0.5, -0.5)
late("cdist", lambda n: torch.cdist(matrix, matrix, p=n), 1.5, -1.0)
late("histc", lambda n: torch.histc(matrix, 4, n, 1), 0, 2)
late("softshrink", lambda n: F.softshrink(matrix, n), 0.5, -0.5)
late("dropout", lambda n: torch.native_dropout(matrix, n, True)[0].shape, 0.5, 2.0)
if DEVICE == "cpu" or "processors" in torch.cuda.get_device_name():  # a GPU divides by 0
    for way in ("remainder", "fmod", "floor_divide"):
        late(f"{way}.0", lambda n: getattr(whole_numbers, way)(n), 2, 0)  # noqa: B023
flat, heads = torch.ones(4, 6, device=DEVICE), torch.ones(3, 2, 4, 8, device=DEVICE)
attention = F.scaled_dot_product_attention
for randomness in ("different", "same"):

    def mapped(what: Callable[..., Any], *inputs: torch.Tensor, dim: int = 0, how: str = randomness) -> Any:
        """By vmap."""
        return torch.vmap(what, in_dims=dim, randomness=how)(*inputs)

    case(f"vmap.dropout.{randomness}", lambda: mapped(lambda t: F.dropout(t, 0.3), flat, dim=1))
    case(f"vmap.attention.{randomness}", lambda: mapped(lambda t: attention(t, t, t, dropout_p=0.3), heads))
case("vmap.attention", lambda: torch.vmap(lambda t: attention(t, t, t))(heads))


def lists(what: Callable[..., Any], *more: Any) -> Any:
    """In place, on a list of one."""
    into = torch.full((3,), 2.0, device=DEVICE)
    what([into], *more)
    return into


three, two = torch.full((3,), 3.0), torch.tensor([2.0])
there = three.to(DEVICE)
case("lists.copy", lambda: lists(torch._foreach_copy_, [three]))
case("lists.addcmul", lambda: lists(torch._foreach_addcmul_, [there], [there], two))
case("lists.addcdiv", lambda: lists(torch._foreach_addcdiv_, [there], [there], two))
back = torch.zeros(3)
torch._foreach_copy_([back], [there])
case("lists.down", lambda: back)


def averaged(**settings: Any) -> Any:
    """A model with whole numbers among its buffers (batch norm counts batches)."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with torch.no_grad():
        for number, one in enumerate(model.parameters()):
            one.copy_(torch.arange(float(one.numel())).view_as(one) + number)
    model = model.to(DEVICE)
    mean = AveragedModel(model, **settings)
    for step in range(3):
        model(torch.ones(3, 4, device=DEVICE) * step)
        mean.update_parameters(model)
    return [*mean.parameters(), *mean.buffers()]


case("averaged", lambda: averaged())
case(
    "averaged.buffers", lambda: [one for one in averaged(use_buffers=True) if one.dtype == whole]
)  # floats: other steps
case("averaged.ema", lambda: averaged(multi_avg_fn=get_ema_multi_avg_fn(0.9)))
