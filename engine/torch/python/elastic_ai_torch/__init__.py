"""GPUs of a lease as CUDA devices of PyTorch, on a machine without a GPU.

`import torch` calls `load` by the entry point group `torch.backends`; PYTHONPATH of this folder's parent is enough.
Without a lease's variables nothing happens. With them nothing is opened: the first use of CUDA connects.
"""

from __future__ import annotations

import os


def load() -> None:
    """What `import torch` calls near its end. It never raises; what is wrong is said in one line."""
    if not os.environ.get("ELASTIC_AI_TORCH_SERVERS"):
        return
    from elastic_ai_torch import start

    start.start()
