"""Settings and modes that decide what an operator gives or refuses, changed after the same call was learned."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def told(name: str, call: Callable[[], Any]) -> None:
    """What it gives, or how it is refused, at this line."""
    try:
        value = call()
    except Exception as fault:
        print(name, type(fault).__name__, str(fault).splitlines()[0].replace("cuda:0", "cpu"))
        torch.ones(1, device=DEVICE).item()  # a refusal that comes late would be raised here
        return
    print(name, value.dtype, list(value.shape), value.cpu().flatten().tolist())


def main() -> None:
    """Prints a line for each call."""
    warnings.simplefilter("ignore")
    whole = torch.tensor([1, 2, 3], dtype=torch.int16, device=DEVICE)
    for kind in (torch.float32, torch.float64, torch.float16, torch.float32):
        torch.set_default_dtype(kind)
        for _ in range(3):
            told("division", lambda: whole / 2)
            told("division of tensors", lambda: whole / whole)
            told("sum with a float", lambda: whole + 1.5)
            told("product with a complex number", lambda: whole * 2j)
            told("sine", whole.sin)
            told("full", lambda: torch.full((2,), 1.5, device=DEVICE))
            told("ones", lambda: torch.ones(2, device=DEVICE))
            told("list", lambda: torch.tensor([1.5, 2.0], device=DEVICE))
    torch.set_default_dtype(torch.float32)

    empty = torch.empty(10, 0, device=DEVICE)
    for rows in ([1, 2], [1, 2, 3], [4], [5, 6, 7, 8]):
        told("rows of an empty tensor", lambda rows=rows: empty[rows])
    told("columns of an empty tensor", lambda: empty[:, [0, 1]])
    told("least of no elements", lambda: empty.amin(1))
    told("place of the greatest of no elements", lambda: empty.argmax(1))

    index, values = torch.tensor([1, 0], device=DEVICE), torch.tensor([5.0, 6.0], device=DEVICE)
    for size in (3, 4, 5, 6):
        told("put", lambda size=size: torch.zeros(size, device=DEVICE).put_(index, values))
    torch.use_deterministic_algorithms(True)
    for size in (3, 6, 7):
        told(
            "put with deterministic algorithms", lambda size=size: torch.zeros(size, device=DEVICE).put_(index, values)
        )
    torch.use_deterministic_algorithms(False)
    told("put", lambda: torch.zeros(3, device=DEVICE).put_(index, values))

    for reduction in ("none", "mean", "sum", "none"):
        for rows in (1, 2, 3, 4):
            scores = torch.arange(rows * 3.0, device=DEVICE).reshape(rows, 3)
            target = torch.tensor([[1, -1, 0]] * rows, device=DEVICE)
            loss = lambda s=scores, t=target, r=reduction: F.multilabel_margin_loss(s, t, reduction=r)  # noqa: E731
            told(f"loss with reduction {reduction}", loss)


if __name__ == "__main__":
    main()
