"""What torch's FakeTensor foretells for the device "cuda", against real kernels of the processor, over all samples.

Needs no engine: it shows for which operators nobody can know a result's geometry without computing it. The last line is
JSON: how many operators agree, and the names of those that differ in sizes or dtypes, in strides, or are not foretold.
"""

from __future__ import annotations

import json
import signal
import warnings
from itertools import islice
from typing import Any

import torch
from operator_sweep import LIMIT_S, Late, ended, kind_of, seeded
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 5


def foretold(op: Any, sample: Any) -> Any:
    """The results, without values."""

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return torch.device("cuda")
        return value

    with FakeTensorMode():
        inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
        return op(inputs, *args, **kwargs)


def geometry(value: Any) -> tuple[list[Any], list[Any]]:
    """Sizes and dtypes; strides of what has more than one element."""
    tensors = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
    sizes = [(list(one.shape), one.dtype) for one in tensors]
    strides = [
        [s for s, n in zip(one.stride(), one.shape, strict=True) if n > 1] if one.numel() else [] for one in tensors
    ]
    return sizes, strides


def one(op: Any) -> str:
    """same, sizes, strides or unknown; none without a sample that the processor computes."""
    kind = kind_of(op, "")
    if kind is None:
        return "none"
    worst = "none"
    for sample in islice(op.sample_inputs("cpu", kind), SAMPLES):
        try:
            real = geometry(seeded(lambda: op(sample.input, *sample.args, **sample.kwargs)))  # noqa: B023
        except Late:
            raise
        except Exception:
            continue
        try:
            fake = geometry(foretold(op, sample))
        except Late:
            raise
        except Exception:
            return "unknown"
        if fake[0] != real[0]:
            return "sizes"
        if fake[1] != real[1]:
            worst = "strides"
        elif worst == "none":
            worst = "same"
    return worst


def main() -> None:
    """Prints the names by what was found."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ended)
    torch.set_num_threads(1)
    found: dict[str, list[str]] = {"same": [], "sizes": [], "strides": [], "unknown": [], "none": []}
    for op in op_db:
        signal.alarm(LIMIT_S)
        try:
            state = one(op)
        except Late:
            state = "unknown"
        finally:
            signal.alarm(0)
        found[state].append(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""))
    print(json.dumps({**found, "same": len(found["same"]), "none": len(found["none"])}))


if __name__ == "__main__":
    main()
