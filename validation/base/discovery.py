"""What the measurements bring is found, not listed: their modules are imported once, when something is looked up."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """Entries by their names, in the order in which they are found. They are looked for when the first is asked for."""

    def __init__(self, find: Callable[[], Iterable[tuple[str, T]]]) -> None:
        """`find`: names and entries; ValueError at the first use where two have one name."""
        self._find = find

    @functools.cached_property
    def _all(self) -> dict[str, T]:
        found: dict[str, T] = {}
        for name, entry in self._find():
            if name in found:
                raise ValueError(f"two measurements bring the name {name!r}; rename one")
            found[name] = entry
        return found

    def __getitem__(self, name: str) -> T:
        """The entry of that name; KeyError."""
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in their order."""
        return iter(self._all)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)
