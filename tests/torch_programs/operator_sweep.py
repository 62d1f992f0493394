"""Torch's own samples of operators on the device and on the processor, every value read and compared by its bits.

    operator_sweep.py WAY [--kind float32] [--samples N] [--after NAME] [--only NAME,...]

WAY: forward, backward, out (`out=` of a wrong size and of the right one), inplace, errors (class and text of what is
refused). Prints a JSON line before each operator and one after it; tests/support/torch_sweep.py reads them, and begins
again behind an operator that ended the process.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

LIMIT_S = 600  # of the wall: the slowest takes seconds, and a loaded machine must not make it fail
GONE = ("closed", "connection", "reset by peer", "broken pipe", "is gone")  # the session, not the operator
STAYS = ("tensor_split",)  # its sections are a tensor of the processor, with a GPU too
NO_VALUES = ("empty", "uninit")  # operators whose values are no one's promise
WHOLE = (torch.int64, torch.int32, torch.uint8, torch.bool)
RTOL, ATOL = 1e-5, 1e-5


class Late(Exception):
    """The operator took longer than LIMIT_S."""


class Differs(Exception):
    """The device has another result than the processor."""


class Left(Exception):
    """The processor itself has no result for this sample."""


def on_device(values: Any) -> Any:
    """The same values on the device: tensors with their strides, and those that share memory share it there."""
    moved: dict[int, torch.Tensor] = {}

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.device.type != "cpu":
                return value
            if value.layout != torch.strided or value.is_conj() or value.is_neg() or value.is_quantized:
                return value.detach().to("cuda").requires_grad_(value.requires_grad)
            storage = value.untyped_storage()
            if storage._cdata not in moved:
                moved[storage._cdata] = torch.empty(0, dtype=torch.uint8).set_(storage).to("cuda")
            whole = torch.empty(0, dtype=value.dtype, device="cuda").set_(moved[storage._cdata].untyped_storage())
            one = whole.as_strided(value.size(), value.stride(), value.storage_offset())
            return one.detach().requires_grad_(value.requires_grad)
        if isinstance(value, torch.device):
            return torch.device("cuda")
        return "cuda" if isinstance(value, str) and value == "cpu" else value

    return tree_map(there, values)


def leaf(value: Any) -> Any:
    """A part of another tensor that wants a gradient, as one of its own: what is moved to the device is that too."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def here(value: Any) -> Any:
    """The same value read."""
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def bits(value: torch.Tensor) -> bytes:
    """Of all its elements, in their order."""
    plain = value.resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    return bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""


def compared(got: Any, want: Any, values: bool) -> tuple[bool, bool]:
    """Whether all bits are the same, and all strides. Differs with the first sentence where they are not even close."""
    ours, theirs = tree_leaves(tree_map(here, got)), tree_leaves(tree_map(here, want))
    if len(ours) != len(theirs):
        raise Differs(f"{len(ours)} results, the processor has {len(theirs)}")
    same = strides = True
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(other, torch.Tensor):
            if type(one) is not type(other) or (values and one != other and one == one):
                raise Differs(f"{one!r}, the processor has {other!r}")
            continue
        if one.dtype != other.dtype or one.shape != other.shape:
            raise Differs(f"{one.dtype}{list(one.shape)}, the processor has {other.dtype}{list(other.shape)}")
        strides &= one.stride() == other.stride()
        if not values or one.layout != torch.strided or bits(one) == bits(other):
            continue
        same = False
        try:
            torch.testing.assert_close(one, other, rtol=RTOL, atol=ATOL, equal_nan=True)
        except AssertionError as fault:
            raise Differs(" ".join(str(fault).split())) from None
    return same, strides


def seeded(call: Callable[[], Any]) -> Any:
    torch.manual_seed(7)
    return call()


def gradients(op: Any, inputs: Any, kwargs: Any) -> Any:
    wanted = [one for one in tree_leaves((inputs, kwargs)) if isinstance(one, torch.Tensor) and one.requires_grad]
    results = [one for one in tree_leaves(op(*inputs, **kwargs)) if isinstance(one, torch.Tensor) and one.requires_grad]
    if not wanted or not results:
        raise Left
    total = [(one.abs() if one.is_complex() else one).sum() for one in results]
    return torch.autograd.grad(total, wanted, allow_unused=True)


def with_out(op: Any, inputs: Any, kwargs: Any, shapes: list[torch.Tensor], wrong: bool) -> Any:
    """What `out=` holds afterwards, and what the call gave."""
    made = [
        torch.full((*one.shape, 2) if wrong else one.shape, 5, dtype=one.dtype, device=one.device) for one in shapes
    ]
    given = op(*inputs, **kwargs, out=made[0] if len(made) == 1 else tuple(made))
    return made, given


def variants(way: str, op: Any, sample: Any) -> Iterator[Callable[[Any, Any], Any]]:
    """What is called with inputs and kwargs, here and there."""
    if way == "forward":
        yield lambda inputs, kwargs: op(*inputs, **kwargs)
    elif way == "backward":
        yield lambda inputs, kwargs: gradients(op, inputs, kwargs)
    elif way == "inplace" and op.inplace_variant and not sample.broadcasts_input:

        def inplace(inputs: Any, kwargs: Any) -> Any:
            changed = inputs[0].clone()
            return op.inplace_variant(changed, *inputs[1:], **kwargs), changed

        yield inplace
    elif way == "out" and op.supports_out:
        for wrong in (True, False):

            def out(inputs: Any, kwargs: Any, wrong: bool = wrong) -> Any:
                shapes = tree_leaves(seeded(lambda: op(*inputs, **kwargs)))
                if not all(isinstance(one, torch.Tensor) for one in shapes):
                    raise Left
                return seeded(lambda: with_out(op, inputs, kwargs, shapes, wrong))

            yield out


def both(call: Callable[[Any, Any], Any], sample: Any, values: bool, stays: bool) -> tuple[bool, bool]:
    """The call on the processor and on the device, compared."""
    inputs, kwargs = tree_map(leaf, ((sample.input, *sample.args), dict(sample.kwargs)))
    remote_inputs, remote_kwargs = on_device((inputs, kwargs))
    if stays:
        remote_inputs, remote_kwargs = (remote_inputs[0], *inputs[1:]), kwargs
    try:
        want = seeded(lambda: call(inputs, kwargs))
    except Late:
        raise
    except Exception as fault:
        raise Left from fault
    got = seeded(lambda: call(remote_inputs, remote_kwargs))
    return compared(got, want, values)


def refused(op: Any, sample: Any) -> tuple[str, str]:
    """Class and text of what the call raises, at the line of the call."""
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except Late:
        raise
    except Exception as fault:
        return type(fault).__name__, str(fault)
    return "nothing", ""


def same_refusals(op: Any, most: int) -> Counter[str]:
    """Every call that torch's own tests expect to be refused is, there as here."""
    done: Counter[str] = Counter()
    for one in islice(op.error_inputs("cpu"), most):
        sample = one.sample_input
        want = refused(op, sample)
        if want[0] == "nothing":
            continue
        given, args, kwargs = on_device((sample.input, sample.args, dict(sample.kwargs)))
        remote = type(sample)(given, args=args, kwargs=kwargs)
        got = refused(op, remote)
        if got[0] == "nothing":
            torch.cuda.synchronize()
        text = got[1].replace("cuda:0", "cpu").replace("cuda", "cpu").replace("CUDA", "CPU")
        if got[0] != want[0]:
            raise Differs(f"{got[0]} ({got[1][:80]}), the processor raises {want[0]}: {want[1].splitlines()[0]}")
        done["samples"] += 1
        done["bits"] += text == want[1].replace("CUDA", "CPU")
    return done


def kind_of(op: Any, wanted: str) -> torch.dtype | None:
    """The wanted kind of number; by default the first of float32, int64, any that the operator takes."""
    if wanted:
        return getattr(torch, wanted) if getattr(torch, wanted) in op.dtypes else None
    first = [kind for kind in (torch.float32, torch.int64) if kind in op.dtypes]
    return first[0] if first else next(iter(op.dtypes), None)


def same_results(way: str, op: Any, most: int, wanted: str) -> Counter[str]:
    done: Counter[str] = Counter()
    kind = kind_of(op, wanted)
    if kind is None or (way == "backward" and (not op.supports_autograd or kind in WHOLE)):
        return done
    values = not any(word in op.name for word in NO_VALUES)
    torch.manual_seed(5)
    for sample in islice(op.sample_inputs("cpu", kind, requires_grad=way == "backward"), most):
        for call in variants(way, op, sample):
            try:
                same, strides = both(call, sample, values, op.name in STAYS)
            except Left:
                done["left"] += 1
                continue
            done["samples"] += 1
            done["bits"] += same
            done["strides"] += strides
    return done


def ended(signum: int, frame: Any) -> None:
    raise Late


def outcome(compare: Callable[[], Counter[str]]) -> dict[str, Any]:
    """How one did."""
    done: Counter[str] = Counter()
    state, text = "ok", ""
    signal.alarm(LIMIT_S)
    try:
        done = compare()
        torch.cuda.synchronize()
        if not done["samples"]:
            state = "none"
    except Late:
        state, text = "late", f"no end within {LIMIT_S} s"
    except Differs as fault:
        state, text = "differs", str(fault)
    except Exception as fault:
        first = (str(fault).splitlines() or [""])[0]
        state, text = "error", f"{type(fault).__name__}: {first}"
    finally:
        signal.alarm(0)
    return {"state": state, "text": text[:240], **done}


def gone() -> bool:
    """Whether there is no session any more."""
    try:
        torch.cuda.synchronize()
    except Exception as fault:
        return any(word in str(fault).lower() for word in GONE)
    return False


def options(ways: list[str], most: int) -> argparse.ArgumentParser:
    """What every sweep is asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=ways)
    parser.add_argument("--samples", type=int, default=most, help="of each at most")
    parser.add_argument("--after", default="")
    parser.add_argument("--only", default="")
    return parser


def sweep(compares: dict[str, Callable[[], Counter[str]]], asked: argparse.Namespace) -> int:
    """Prints how each did. 0, or 3 where the session is gone and a new process has to go on."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ended)
    torch.set_num_threads(1)
    torch.zeros(1, device="cuda")
    names = list(compares)
    only = set(asked.only.split(",")) if asked.only else set(names)
    for name in names[names.index(asked.after) + 1 if asked.after else 0 :]:
        if name not in only:
            continue
        print(json.dumps({"begin": name}), flush=True)
        done = outcome(compares[name])
        print(json.dumps({"name": name, **done}), flush=True)
        if done["state"] == "late" or (done["state"] == "error" and gone()):
            return 3
    print(json.dumps({"end": len(names)}), flush=True)
    return 0


def main() -> int:
    """What `sweep` gives."""
    parser = options(["forward", "backward", "out", "inplace", "errors"], 1_000_000)
    parser.add_argument("--kind", default="")
    asked = parser.parse_args()

    def compare(op: Any) -> Counter[str]:
        if asked.way == "errors":
            return same_refusals(op, asked.samples)
        return same_results(asked.way, op, asked.samples, asked.kind)

    named = {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}
    assert len(named) == len(op_db), "two operators of one name"
    wanted = {name: op for name, op in named.items() if asked.way != "errors" or op.error_inputs_func}
    return sweep({name: partial(compare, op) for name, op in wanted.items()}, asked)


if __name__ == "__main__":
    sys.exit(main())
