"""Something to do when a large module of torch's has run, for few programs ever ask for it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_loaded(name: str, change: Callable[[ModuleType], object]) -> None:
    """`change` for the module of that name: now where it is there, else when a program imports it."""
    if module := sys.modules.get(name):
        change(module)
    else:
        sys.meta_path.insert(0, _Finder(name, change))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds that one module once, as Python does."""

    def __init__(self, name: str, change: Callable[[ModuleType], object]) -> None:
        self._name, self._change = name, change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        own = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            own(module)
            self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
