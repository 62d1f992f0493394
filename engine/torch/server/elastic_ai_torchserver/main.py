"""The program."""

from __future__ import annotations

import os
import resource
import sys

from elastic_ai_torchserver import fail
from elastic_ai_torchserver.memory import preload, set_allocator
from elastic_ai_torchserver.options import keep_report, options
from elastic_ai_torchserver.server import Server
from elastic_ai_torchserver.session import load


def main() -> None:
    """Runs the server."""
    given = options()
    if given.device == "cuda":
        preload()
        set_allocator()
    keep_report(given)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the token and tenants' data
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # the client's plug-in may be installed here too
    try:
        import torch
    except ImportError as fault:
        fail(f"{sys.executable} has no PyTorch ({fault}); start the server with a Python that has", 1)
    Server(given, load(given, torch.__version__)).run()
