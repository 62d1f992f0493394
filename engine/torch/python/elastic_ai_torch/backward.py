"""The order of a backward pass, where the server computes on processors.

torch runs the nodes of a GPU's graph in a thread of its own, and nodes that are made there (`create_graph`) are
numbered from one again: a second differentiation adds its gradients in another order than a processor's, so that last
digits differ. On a GPU this is native's order, and stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.variable import Variable

from elastic_ai_torch.client import Client


def install(client: Client) -> None:
    """Replace the engine that Tensor.backward and torch.autograd.grad call."""

    class Engine(torch._C._ImperativeEngine):
        def run_backward(self, *arguments: Any, **named: Any) -> Any:
            if not client.on_processors():
                return super().run_backward(*arguments, **named)
            with torch.autograd.set_multithreading_enabled(False):
                return super().run_backward(*arguments, **named)

    Variable._execution_engine = Engine()
