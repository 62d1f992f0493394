"""Small values that are read, written in every way there is, and read again: one line of bytes for each.

Natively and by the engine the lines are the same, whatever the engine keeps of values that it has seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDS = 2
"""Of everything: what is read in one round comes along in the next."""


def show(name: str, *values: torch.Tensor) -> None:
    """The bytes of each, read one after the other."""
    read = [
        bytes(
            value.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).numpy()
        ).hex()
        for value in values
    ]
    print(name, *read, flush=True)


def up(*values: float, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=kind).to(DEVICE)


def computed(*values: float) -> torch.Tensor:
    """One that no upload has made."""
    return up(*values) * 2.0 + 1.0


def in_place(x: torch.Tensor) -> None:
    x.add_(1)


def by_a_view(x: torch.Tensor) -> None:
    x[0] += 3
    x.view(-1)[1:].mul_(2)
    x.data[0] = 7


def by_out(x: torch.Tensor) -> None:
    torch.add(x.clone(), 5, out=x)


def by_foreach(x: torch.Tensor) -> None:
    torch._foreach_add_([x, torch.ones(2, device=x.device)], 1.5)
    torch._foreach_mul_([x], [2.0])


def by_upload(x: torch.Tensor) -> None:
    x.copy_(torch.full_like(x, 9, device="cpu"))


def by_part_of_an_upload(x: torch.Tensor) -> None:
    x[1:].copy_(torch.full_like(x[1:], 11, device="cpu"))


def by_pinned_upload(x: torch.Tensor) -> None:
    given = torch.full_like(x, 13, device="cpu")
    x.copy_(given.pin_memory() if DEVICE == "cuda" else given, non_blocking=True)


def on_the_device(x: torch.Tensor) -> None:
    x.copy_(torch.arange(x.numel(), device=x.device).to(x.dtype))


def filled(x: torch.Tensor) -> None:
    x.zero_()
    x.fill_(4)


def at_random(x: torch.Tensor) -> None:
    x.uniform_(0, 1)
    x.mul_(0)


def indexed(x: torch.Tensor) -> None:
    x[torch.tensor([0], device=x.device)] = 21
    x.index_add_(0, torch.tensor([1], device=x.device), torch.ones(1, device=x.device))
    x.scatter_(0, torch.tensor([1], device=x.device), 2.0)
    x.masked_fill_(x == 21, 1)


def resized(x: torch.Tensor) -> None:
    x.resize_(4)[2:] = 6
    x.resize_(2).add_(1)


def set_to_another(x: torch.Tensor) -> None:
    other = torch.full((2,), 8.0, device=x.device)
    x.set_(other)
    other.add_(1)


def by_its_storage(x: torch.Tensor) -> None:
    x.untyped_storage().fill_(0)
    whole = torch.empty(0, dtype=torch.int32, device=x.device).set_(x.untyped_storage())
    whole.add_(3)


def in_another_thread(x: torch.Tensor) -> None:
    thread = threading.Thread(target=lambda: x.add_(2))
    thread.start()
    thread.join()


def refused_late(x: torch.Tensor) -> None:
    try:
        x.add_(torch.ones(3, device=x.device))
    except RuntimeError:
        x.sub_(1)


WRITES: tuple[Callable[[torch.Tensor], None], ...] = (
    in_place, by_a_view, by_out, by_foreach, by_upload, by_part_of_an_upload, by_pinned_upload, on_the_device, filled,
    at_random, indexed, resized, set_to_another, by_its_storage, in_another_thread, refused_late,
)  # fmt: skip


def written() -> None:
    """Each way, on what was uploaded, on what came along, and on what was read just now."""
    for write in WRITES:
        uploaded, other, made = up(1, 2), computed(3, 4), computed(5, 6)
        show(f"{write.__name__} before", made)  # `other` comes along
        for x in (uploaded, other, made):
            write(x)
        show(write.__name__, uploaded, other, made)
        for x in (uploaded, other, made):
            write(x)
        show(f"{write.__name__} again", made, other, uploaded)


def statistics() -> None:
    """Batch norms write their running statistics, which their operators do not say."""
    layer = nn.BatchNorm1d(2).to(DEVICE)
    instance = nn.InstanceNorm1d(2, track_running_stats=True).to(DEVICE)
    for number in range(3):
        x = torch.arange(12.0).view(2, 2, 3).to(DEVICE) + number
        layer(x)
        instance(x)
        for each in (layer, instance):
            show("statistics", *each.buffers())


def optimized() -> None:
    """Parameters that were uploaded and are small, with all that an optimiser keeps."""
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop):
        for way in ({"foreach": True}, {"foreach": False}):
            weight = nn.Parameter(torch.tensor([1.0, -2.0]).to(DEVICE))
            optimizer = kind([weight], lr=0.1, **way)
            for _ in range(2):
                show("weight", weight)
                loss = (weight * up(0.5, 0.25)).pow(2).sum()
                loss.backward()
                show("gradient", weight.grad, loss)
                optimizer.step()
                optimizer.zero_grad()
            show("weight", weight, *[v for v in optimizer.state[weight].values() if isinstance(v, torch.Tensor)])


def scaled() -> None:
    """A step that is left out for infinities, and one that is not."""
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=2)
    weight = nn.Parameter(torch.tensor([1.0, -2.0]).to(DEVICE))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for factor in (1.0, float("inf"), 1.0, 1.0):
        loss = (weight * factor).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        show("scaled", loss, weight)
        print("scale", scaler.get_scale())


def saved() -> None:
    """What a gradient needs is what it was."""
    x = up(2, 3).requires_grad_()
    y = x * x
    total = y.sum()
    show("saved", total, y)
    total.backward()
    show("saved", x.grad)


BITS = {
    torch.float32: [0x7FC00001, 0xFFC12345, 0x7F812345, 0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000],
    torch.bfloat16: [0x7FC1, 0xFFA5, 0x8000, 0x0001, 0x7F80],
    torch.float16: [0x7E01, 0xFD01, 0x8000, 0x0001, 0x7C00],
    torch.float64: [0x7FF8000000000123, 0xFFF0000000000001, 0x8000000000000000, 1, 0x7FF0000000000000],
}
WHOLE = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float64: torch.int64,
}


def no_numbers() -> None:
    """Values that are no numbers, negative zeros and the least ones keep their bits; tests of them are as natively."""
    for kind, patterns in BITS.items():
        size = torch.empty(0, dtype=kind).element_size() * 8
        whole = [value - (1 << size) if value >> (size - 1) else value for value in patterns]
        x = torch.tensor(whole, dtype=WHOLE[kind]).view(kind).to(DEVICE)
        show(str(kind), x, x[1:], x.clone(), x.isnan(), x.isinf(), x == 0, x != x, x < 1, x >= 0)
        for one in x:
            value = one + 0
            tests = (value.isnan(), value.isinf(), value == 0, value > 0, value <= 1e-40, value != 1)
            print("tests", [bool(test) for test in tests])
            show(str(kind), *tests)


def whole_numbers() -> None:
    """Arithmetic of integers that are known, to its overflow."""
    for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        most = 1 if kind == torch.bool else torch.iinfo(kind).max
        x, y = torch.tensor([most, 0, 1], dtype=kind).to(DEVICE), torch.tensor([1, most, 1], dtype=kind).to(DEVICE)
        got = [x + y, x * y, torch.maximum(x, y), x & y, x | y, x ^ y, x == y, x.any(), x.all(), x.sum(), x.max()]
        got += [torch.cat([x, y]), torch.stack([x, y]).amax(0), x.flip(0), ~x, x.logical_not(), x[[0, 2]], x != 1]
        got += [x[1:], x[::2], x.repeat(2), x.index_select(0, torch.tensor([2, 0], device=x.device)), x.min()]
        if kind != torch.bool:
            got += [x - y, 1 - x, x + 7, x * 3, x > 100, x + 1.5, x.sum(dtype=torch.float32)]
        show(str(kind), *got)
        x.logical_not_()
        show(str(kind), x, x + y)


def mixed() -> None:
    """Several types and numbers of Python: what is promoted natively is promoted."""
    x, y = torch.tensor([3, -4], dtype=torch.int32).to(DEVICE), torch.tensor([3, 1 << 40]).to(DEVICE)
    z, small = torch.tensor([0.1, 3.0]).to(DEVICE), torch.tensor([200, 3], dtype=torch.uint8).to(DEVICE)
    show("mixed", x + y, x == y, z == 0.1, z < 0.1, z == x, z > y, small + 100, small == 200, small + x, small * True)
    show("mixed", z != torch.tensor(0.1, dtype=torch.float64), torch.tensor(3) == x, z.abs(), (-z).abs(), x.abs())


def padded() -> None:
    """A loop that ends with its last text, as generation has it."""
    torch.manual_seed(1)
    table = torch.randn(7, 7).to(DEVICE)
    text, going = torch.zeros(3, 1, dtype=torch.long, device=DEVICE), torch.ones(3, dtype=torch.long, device=DEVICE)
    for _ in range(12):
        found = (table[text[:, -1]] + text.sum(1, keepdim=True) % 5).argmax(-1)
        found = found * going + 6 * (1 - going)
        text = torch.cat([text, found[:, None]], 1)
        going = going & ~torch.isin(text[:, -1], torch.tensor([6], device=DEVICE))
        ended = going.max() == 0
        show("padded", found, going)
        if ended:
            break
    show("padded", text)


def sums() -> None:
    """Values of one step read together, one of them added up in place."""
    total, right = torch.zeros((), device=DEVICE), torch.zeros((), dtype=torch.long, device=DEVICE)
    for number in range(5):
        x = up(number, 2) * 0.3
        loss, hits = x.sum(), (x > 0.5).sum()
        total += loss
        right += hits
        show("sums", loss, hits)
        show("sums", total, right)
        print("filter", bool(torch.isnan(loss)), bool(torch.isinf(loss)), loss.item())
        loss += 1
        show("sums", loss)


def main() -> None:
    """Everything, several times."""
    torch.manual_seed(0)
    print("device", DEVICE)
    parts = (written, statistics, optimized, scaled, saved, no_numbers, whole_numbers, mixed, padded, sums)
    for _ in range(ROUNDS):
        for part in parts:
            part()
    if DEVICE == "cuda":
        from elastic_ai_torch import start

        counted = start.statistics()
        names = ("waits", "known_values", "values_along", "values_computed", "values_checked", "values_wrong")
        print("counted", *(f"{name}={counted[name]}" for name in names))


if __name__ == "__main__":
    main()
