"""Two devices in one process: what cuda:0 can, cuda:1 can, and what is not to be mixed says so."""

from __future__ import annotations

import torch

one, other = torch.device("cuda:0"), torch.device("cuda:1")


def refused(what: object, *arguments: object, **named: object) -> str:
    """The error's first line."""
    try:
        what(*arguments, **named)  # type: ignore[operator]
    except RuntimeError as fault:
        return f"{type(fault).__name__}: {str(fault).splitlines()[0]}"
    return "no error"


def mixed() -> None:
    """Tensors of two devices in one call."""
    a, b = torch.arange(6.0, device=one), torch.arange(6.0, device=other)
    both = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"
    for call in (
        lambda: a + b, lambda: torch.mm(a.view(2, 3), b.view(3, 2)), lambda: torch.cat([a, b]), lambda: a.add_(b),
        lambda: torch.where(a > 2, b, a), lambda: torch.add(a, a, out=b), lambda: a[torch.tensor([1], device=other)],
    ):  # fmt: skip
        assert refused(call) == f"RuntimeError: {both}", refused(call)
    assert "different device" in refused(a.set_, b)
    generator = torch.Generator(other)
    assert "a generator of cuda:0 but found one of cuda:1" in refused(torch.randn, 2, generator=generator, device=one)
    assert refused(torch.zeros, 1, device="cuda:2").startswith("AcceleratorError: CUDA error: invalid device ordinal")
    assert torch.cuda.current_device() == 0


def copies() -> None:
    """Between the two, of any dtype and strides, also with errors kept."""
    torch.manual_seed(1)
    kinds = [
        torch.randn(1000, device=one),
        torch.randn(3, 4, device=one).t(),
        torch.randn(4, 6, device=one)[:, ::2],
        torch.randn(5, dtype=torch.complex64, device=one).conj(),
        torch.tensor(3, device=one),
        torch.randn(0, 3, device=one),
        torch.randn(3_000_000, device=one),
        torch.randn(4, 1, device=one).expand(4, 5),
    ]
    for made in kinds:
        there = made.to(other)
        assert there.device == other
        assert torch.equal(there.cpu(), made.cpu())
        assert torch.equal(there.to(one).cpu(), made.cpu())
    wide = torch.zeros(6, 3, dtype=torch.float64, device=other).t()
    narrow = torch.randn(3, 6, device=one)
    wide.copy_(narrow, non_blocking=True)
    narrow.zero_()  # later, and so seen by no copy
    assert wide.abs().sum().item() > 0
    part = torch.zeros(10, device=other)
    part[2:4].copy_(torch.ones(2, device=one))
    assert part.tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    x = torch.ones(3, device=one, requires_grad=True)
    (x.to(other) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


def each() -> None:
    """Generators, streams, events, statistics, properties."""
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device=one).cpu(), torch.rand(4, device=other).cpu())
    state = torch.cuda.get_rng_state(1)
    first = torch.rand(3, device=other)
    torch.cuda.set_rng_state(state, 1)
    assert torch.equal(torch.rand(3, device=other), first)
    generator = torch.Generator(other).manual_seed(3)
    assert torch.randn(2, generator=generator, device=other).device == other
    before = torch.cuda.memory_allocated(1), torch.cuda.memory_allocated(0)
    held = torch.zeros(1 << 20, device=other)
    assert torch.cuda.memory_allocated(1) - before[0] == 4 << 20
    assert torch.cuda.memory_allocated(0) == before[1]
    stream, begin, end = torch.cuda.Stream(other), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1
        begin.record()
        held.add_(1)
        end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0
    assert begin.device == other
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert torch.ones(1, device="cuda").device == other
    assert torch.cuda.get_device_properties(1).total_memory > 0
    assert torch.cuda.mem_get_info(1)[0] <= torch.cuda.mem_get_info(0)[0]
    torch.cuda.synchronize(1)


def data_parallel() -> None:
    """One process, the batch over both."""
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 2).to(one)
    x = torch.randn(4, 6, device=one)
    net(x).square().sum().backward()
    alone = net.weight.grad.clone()
    net.zero_grad()
    both = torch.nn.DataParallel(net, device_ids=[0, 1])
    both(x).square().sum().backward()
    assert torch.allclose(net.weight.grad, alone)
    assert torch.equal(both(x), net(x))


if __name__ == "__main__":
    assert torch.cuda.device_count() == 2
    for part in (mixed, copies, each, data_parallel):
        part()
        print(part.__name__, flush=True)
    print("peers", torch.cuda.can_device_access_peer(0, 1))
