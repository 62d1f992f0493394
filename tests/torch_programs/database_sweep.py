"""Torch's databases of modules and optimisers (in the wheel) on the device and on the processor, every value compared.

    database_sweep.py modules|optimizers [--samples N] [--after NAME] [--only NAME,...]

modules: constructed on the processor and moved, in training and evaluation; outputs, buffers, gradients of parameters
and inputs. optimizers: three steps in each implementation (one by one, foreach, fused); parameters and state. Prints
lines as operator_sweep.py does.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from operator_sweep import Late, compared, on_device, options, seeded, sweep
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_leaves, tree_map

STEPS = 3
MOST = 20  # one module has 857 inputs


def held(value: Any) -> Any:
    """Of a packed or other structure of torch's own: its tensors."""
    return tuple(value) if isinstance(value, torch.nn.utils.rnn.PackedSequence) else value


def leaves(module: torch.nn.Module, inputs: Any, kwargs: Any) -> list[torch.Tensor]:
    """What gets a gradient."""
    tensors = [one for one in tree_leaves((inputs, kwargs)) if isinstance(one, torch.Tensor)]
    return [one for one in (*module.parameters(), *tensors) if one.requires_grad and one.is_leaf]


def trained(module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
    """What the module gives, and what it and its inputs have afterwards."""
    wanted = leaves(module, inputs, kwargs)
    given = module(*inputs, **kwargs)
    results = [one for one in tree_leaves(held(given)) if isinstance(one, torch.Tensor)]
    graded = [one for one in results if one.requires_grad]
    if graded:
        torch.autograd.backward([(one.abs() if one.is_complex() else one).sum() for one in graded])
    return results, [one.grad for one in wanted], list(module.buffers())


def alone(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def spread(samples: list[Any], most: int) -> list[Any]:
    """As many of them at most, from the first to the last."""
    return samples[:: -(-len(samples) // most)] if samples else []


def same_module(info: Any, most: int) -> Counter[str]:
    """Every input of the module, in both of its modes."""
    done: Counter[str] = Counter()
    kind = torch.float32
    for training in (True, False):
        torch.manual_seed(5)
        samples = info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=True, training=training)
        for sample in spread(samples, most):
            made, called = sample.constructor_input, sample.forward_input
            here = info.module_cls(*copy.deepcopy(made.args), **copy.deepcopy(made.kwargs)).train(training)
            # Without what computed them: it would be a leaf on the device alone.
            inputs, kwargs = tree_map(alone, (called.args, called.kwargs)) if called else ((), {})
            moved = copy.deepcopy(here).to("cuda")
            remote_inputs, remote_kwargs = on_device((inputs, kwargs))
            try:
                want = seeded(lambda: trained(here, inputs, kwargs))  # noqa: B023
            except Late:
                raise
            except Exception:
                done["left"] += 1
                continue
            got = seeded(lambda: trained(moved, remote_inputs, remote_kwargs))  # noqa: B023
            same, strides = compared(got, want, True)
            done["samples"] += 1
            done["bits"] += same
            done["strides"] += strides
    return done


def stepped(info: Any, kwargs: dict[str, Any], device: str) -> Any:
    """Parameters and state after some steps."""
    torch.manual_seed(5)
    # On the processor first: a device's own draws are others on a GPU.
    parameters = [torch.nn.Parameter(torch.randn(size).to(device)) for size in ((4, 3), (3, 4))]
    gradients = [[torch.randn(one.shape).to(device) for one in parameters] for _ in range(STEPS)]
    optimizer = info.optim_cls(parameters, **kwargs)
    for step in range(STEPS):

        def closure(step: int = step) -> torch.Tensor:
            for one, gradient in zip(parameters, gradients[step], strict=True):
                one.grad = gradient.clone()
            return sum(((one * one).sum() for one in parameters), start=torch.zeros((), device=device)).detach()

        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = [value for one in parameters for _, value in sorted(optimizer.state[one].items())]
    return list(parameters), [one for one in tree_leaves(state) if isinstance(one, torch.Tensor)]


def same_optimizer(info: Any, most: int) -> Counter[str]:
    """Every set of arguments, in every implementation that the processor has."""
    done: Counter[str] = Counter()
    ways = [{"foreach": False}] if "foreach" in info.supported_impls else [{}]
    ways += [{name: True} for name in info.supported_impls if name != "differentiable"]
    for sample in spread(info.optim_inputs_func(device="cpu", dtype=torch.float32), most):
        for way in ways:
            kwargs = {**sample.kwargs, **way}
            try:
                want = stepped(info, copy.deepcopy(kwargs), "cpu")
            except Late:
                raise
            except Exception:
                done["left"] += 1
                continue
            got = stepped(info, on_device(copy.deepcopy(kwargs)), "cuda")
            same, strides = compared(got, want, True)
            done["samples"] += 1
            done["bits"] += same
            done["strides"] += strides
    return done


WAYS: dict[str, tuple[list[Any], Callable[[Any], str], Callable[[Any, int], Counter[str]]]] = {
    "modules": (module_db, lambda info: info.name, same_module),
    "optimizers": (optim_db, lambda info: info.optim_cls.__name__, same_optimizer),
}


def main() -> int:
    """What `sweep` gives."""
    asked = options(list(WAYS), MOST).parse_args()
    database, name_of, same = WAYS[asked.way]
    named = {name_of(info): info for info in database}
    assert len(named) == len(database), "two of one name"
    return sweep({name: partial(same, info, asked.samples) for name, info in named.items()}, asked)


if __name__ == "__main__":
    sys.exit(main())
