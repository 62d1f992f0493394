"""Torch's operator samples on `cuda`: a line for each operator with a digest of every result and gradient.

gpu_sweep.py [--samples 3] [--part 1/4]     natively and by the engine; tests/support/torch_gpu.py holds them together
"""

import argparse
import hashlib
import json
import signal
import warnings
from itertools import islice

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

LIMIT_S = 30


class LateError(Exception):
    """An operator took longer than LIMIT_S."""


def late(*_: object) -> None:
    raise LateError(f"longer than {LIMIT_S} s")


def digest(values: object) -> str:
    """Of types, shapes, strides and bits."""
    told = hashlib.sha256()
    for one in tree_leaves(values):
        if isinstance(one, torch.Tensor) and one.layout == torch.strided:
            plain = one.detach().cpu().resolve_conj().resolve_neg().reshape(-1).clone()
            told.update(f"{one.dtype} {tuple(one.shape)} {one.stride()}".encode())
            told.update(bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b"")
        else:
            told.update(repr(one).encode())
    return told.hexdigest()[:24]


def swept(op, count: int) -> dict[str, object]:
    """Digests of the first samples, forward and backward."""
    found: dict[str, object] = {"forward": [], "backward": []}
    torch.manual_seed(5)
    for number, sample in enumerate(islice(op.sample_inputs("cuda", torch.float32, requires_grad=True), count)):
        for way in ("forward", "backward"):
            torch.manual_seed(6 + number)
            try:
                out = op(sample.input, *sample.args, **sample.kwargs)
                if way == "backward":
                    wanted = [one for one in tree_leaves((sample.input, sample.args, sample.kwargs))
                              if isinstance(one, torch.Tensor) and one.requires_grad]  # fmt: skip
                    parts = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor) and one.requires_grad]
                    if not wanted or not parts:
                        continue
                    total = sum((one.abs() if one.is_complex() else one).sum() for one in parts)
                    out = torch.autograd.grad(total, wanted, allow_unused=True)
                found[way].append(digest(out))
            except LateError:
                raise
            except Exception as fault:
                found[way].append(f"{type(fault).__name__}: {str(fault).splitlines()[0][:160]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--part", default="1/1")
    given = parser.parse_args()
    at, parts = map(int, given.part.split("/"))
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    torch.ones(1, device="cuda")
    ops = [op for op in op_db if torch.float32 in op.supported_dtypes("cuda") and "jiterator" not in op.name]
    for op in ops[at - 1 :: parts]:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        signal.alarm(LIMIT_S)
        try:
            found = swept(op, given.samples)
        except Exception as fault:
            found = {"fault": f"{type(fault).__name__}: {fault}"[:200]}
        signal.alarm(0)
        print(json.dumps({"op": name, **found}), flush=True)


main()
