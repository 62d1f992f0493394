"""The client of engine tensorflow: a program's TensorFlow works on the GPUs of its lease, by TensorFlow's own
distributed runtime. Nothing of the program is changed, and nothing of it is computed on this machine's processor but
what reads and prepares its input.

`install` is called at the start of Python (sitecustomize.py). It costs a program that imports no TensorFlow nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def _tensorflow(module: ModuleType) -> None:
    from elastic_ai_tensorflow.attach import attach

    attach(module)


def _keras_trainer(module: ModuleType) -> None:
    from elastic_ai_tensorflow.keras_step import take_batches_first

    take_batches_first(module)


#: What is done after which import. Keras has its own: a program may import it first, and it imports TensorFlow when it
#: is half there.
_AFTER: dict[str, Callable[[ModuleType], None]] = {
    "tensorflow": _tensorflow,
    "keras.src.backend.tensorflow.trainer": _keras_trainer,
}


class _Then(Loader):
    """A module's own loader, and after it what is ours."""

    def __init__(self, loader: Loader, after: Callable[[ModuleType], None]) -> None:
        self.loader, self.after = loader, after

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """`import tensorflow`."""
        self.loader.exec_module(module)
        self.after(module)

    def __getattr__(self, name: str) -> object:
        """What others ask of a loader: is_package, get_code, get_data."""
        return getattr(self.loader, name)


class _Finder(MetaPathFinder):
    """Before all others; it looks at two names."""

    def __init__(self) -> None:
        self._looking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of these modules, as all others find it."""
        after = _AFTER.get(fullname)
        if after is None or getattr(self._looking, "now", False):
            return None
        self._looking.now = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking.now = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Then(spec.loader, after)
        return spec


def install() -> None:
    """From now on."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
