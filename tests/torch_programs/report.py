"""What the programs print: the device, losses and weights by their bits. The programs themselves know of no engine.

Natively one generator serves the processor; by the engine the device has one of its own. So a program that draws on
both sides seeds again between them, as it would have to on a machine with a GPU; and where torch chooses another form
of an optimiser for a GPU whose bits differ (NAdam, RAdam, ASGD: `foreach`), the program says which.
"""

from __future__ import annotations

import hashlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)
print("device", DEVICE, flush=True)


def loss(value: torch.Tensor | float) -> None:
    """One number that is read."""
    print("loss", float(value).hex(), flush=True)


def bits(*values: torch.Tensor) -> None:
    """All bits of these tensors, as a digest."""
    digest = hashlib.sha256()
    for value in values:
        plain = value.detach().cpu().resolve_conj().resolve_neg().reshape(-1).clone()
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode() + bytes(plain.view(torch.uint8).numpy()))
    print("loss", digest.hexdigest()[:32], flush=True)


def weights(model: torch.nn.Module) -> None:
    """All bits of what the model has learned."""
    bits(*(value for _, value in sorted(model.state_dict().items())))
