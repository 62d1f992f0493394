"""The client of engine tensorflow: a program's TensorFlow works on the GPUs of its lease, by TensorFlow's own
distributed runtime. Nothing of the program is changed, and nothing of it is computed on this machine's processor but
what reads and prepares its input.

`install` is called at the start of Python (sitecustomize.py). It costs a program that imports no TensorFlow nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class _ThenAttach(Loader):
    """TensorFlow's own loader, and after it ours."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As TensorFlow's."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """`import tensorflow`."""
        self.loader.exec_module(module)
        from elastic_ai_tensorflow.attach import attach

        attach(module)

    def __getattr__(self, name: str) -> object:
        """What others ask of a loader: is_package, get_code, get_data."""
        return getattr(self.loader, name)


class _Finder(MetaPathFinder):
    """Before all others; it looks at one name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of tensorflow, once."""
        if fullname != "tensorflow" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec("tensorflow")
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _ThenAttach(spec.loader)
        return spec


def install() -> None:
    """From now on."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
