"""Read by every Python at its start: makes `import tensorflow` find the lease's GPUs, and goes on with the
sitecustomize that would have been read without this one."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent

if os.environ.get("ELASTIC_AI_TENSORFLOW_SERVERS"):
    from elastic_ai_tensorflow import install

    install()


def _go_on() -> None:
    others = [path for path in sys.path if Path(path or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_go_on()
