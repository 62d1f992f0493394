"""What `import torch` does in a lease: register, open nothing, never fail."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch

from elastic_ai_torch.client import Client, Library
from elastic_ai_torch.lease import Lease
from elastic_ai_torch.native import Native, Unusable, library, torch_minor

#: Set in the environment once the sentence was said, so that each worker of the program does not say it again.
_SAID = "ELASTIC_AI_TORCH_SAID"
#: The driver's device of a GPU that is here.
OWN_GPU = "/dev/nvidia0"
_client: Client | None = None


def start() -> None:
    """Take the lease's GPUs as CUDA devices, or say in one line why not."""
    if own_gpu() and os.environ.get("ELASTIC_AI_TORCH_ONLY_LEASED") != "1":
        say(
            "this machine has a GPU of its own, and PyTorch uses that one, not the lease's; "
            "`toolkit run` sets ELASTIC_AI_TORCH_ONLY_LEASED=1, by which only the lease's are used"
        )
        return
    try:
        begin(Native(library(folder(), torch_minor())), torch_minor())
    except Unusable as fault:
        give_up(str(fault))
    except Exception as fault:
        give_up(f"the engine cannot start with PyTorch {torch.__version__}: {type(fault).__name__}: {fault}")


def folder() -> Path:
    """Where the engine's libraries are: beside the folder `python` that PYTHONPATH names."""
    return Path(__file__).resolve().parent.parent.parent / "lib"


def own_gpu() -> bool:
    """Whether this PyTorch could use a GPU of this machine: a wheel with CUDA, and the driver's device."""
    return hasattr(torch._C, "_cuda_getDeviceCount") and Path(OWN_GPU).exists()


def begin(native: Library, minor: str) -> None:
    """Everything that `import torch` sets up, in the order that it needs."""
    global _client
    from elastic_ai_torch import (
        backends,
        backward,
        compiling,
        cuda_names,
        extensions,
        layouts,
        legacy,
        overrides,
        printing,
        process_group,
        random_states,
        refusals,
        several,
        storages,
    )  # fmt: skip

    client = Client(Lease.of(os.environ), native, minor)
    cuda_names.install(client)
    overrides.deregister()
    refusals.install()
    refusals.unknown_names(torch._C)
    backends.install(client)
    backward.install(client)
    storages.install()
    printing.install()
    random_states.install(client)
    legacy.install()
    layouts.install()
    several.install()
    process_group.install(client)
    compiling.install()
    extensions.install()
    if isinstance(native, Native):
        native.on_warning(lambda text: warnings.warn(text, stacklevel=2))
    os.register_at_fork(after_in_child=native.after_fork)
    atexit.register(native.shutdown)
    _client = client


def give_up(sentence: str) -> None:
    """No devices: said now, and again by the first use of CUDA."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"no leased GPU: {sentence}")

    say(sentence)
    torch.cuda._lazy_init = refused


def say(sentence: str) -> None:
    """One line on stderr, once for a program and its workers."""
    if os.environ.get(_SAID) != sentence:
        os.environ[_SAID] = sentence
        print(f"elastic-ai-torch: {sentence}", file=sys.stderr)


def statistics() -> dict[str, int]:
    """Counters of this process's client, for measurements."""
    if _client is None or not isinstance(_client.library, Native):
        return {}
    return _client.library.statistics()
