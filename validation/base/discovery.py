"""What the measurements bring is found, not listed: their modules are imported once, when something is looked up."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TypeVar

MEASURES = "validation.measures"
NODE_SIDE = "_probe"
"""End of the names of modules that run on nodes, in whatever Python is there: nobody else needs them imported."""
FIGURES = "_figures"
"""End of the names of modules that draw for the report, which alone has them imported."""
T = TypeVar("T")
_LOCK = threading.RLock()
_found: dict[str, tuple[ModuleType, ...]] = {}


def modules(package: str = MEASURES) -> tuple[ModuleType, ...]:
    """All modules below a package, but those that run on nodes or draw, in the order of their names."""
    return _modules(package, lambda name: not name.endswith((NODE_SIDE, FIGURES)))


def figures() -> tuple[ModuleType, ...]:
    """All modules of the measurements that draw, in the order of their names."""
    return _modules(f"{MEASURES} {FIGURES}", lambda name: name.endswith(FIGURES))


def _modules(what: str, wanted: Callable[[str], bool]) -> tuple[ModuleType, ...]:
    with _LOCK:
        if what not in _found:
            package = importlib.import_module(what.split(" ")[0])
            every = sorted(module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
            _found[what] = tuple(importlib.import_module(name) for name in every if wanted(name))
        return _found[what]


class Discovered(Mapping[str, T]):
    """Entries by their names, in the order of these. A module adds its own when it is imported; the measurements, and
    those of the packages that are named here, are imported when somebody looks.
    """

    def __init__(self, *packages: str) -> None:
        """`packages`: where entries may stand beside the measurements."""
        self._packages = (*packages, MEASURES)
        self._entries: dict[str, T] = {}
        self._whole: dict[str, T] | None = None

    def add(self, name: str, entry: T) -> None:
        """Take an entry up; ValueError where there is one of that name from elsewhere."""
        if name in self._entries and self._whole is not None:
            raise ValueError(f"there are two of the name {name!r}")
        self._entries[name] = entry

    def _all(self) -> dict[str, T]:
        if self._whole is None:
            for package in self._packages:
                modules(package)
            self._whole = dict(sorted(self._entries.items()))
        return self._whole

    def __getitem__(self, name: str) -> T:
        """The entry of that name; KeyError."""
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in their order."""
        return iter(self._all())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all())
