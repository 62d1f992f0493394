"""What the measurements bring is found, not listed: their modules are imported once, when something is looked up."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from types import ModuleType

MEASURES = "validation.facts"
NODE_SIDE = ("_probe", "_program")
"""Ends of the names of modules that run on nodes, in whatever Python is there: nobody else needs them imported."""
_LOCK = threading.RLock()
_found: list[ModuleType] = []


def measures() -> tuple[ModuleType, ...]:
    """All modules of `validation/measures/`, but those that run on nodes, in the order of their names."""
    with _LOCK:
        if not _found:
            package = importlib.import_module(MEASURES)
            names = sorted(
                module.name
                for module in pkgutil.walk_packages(package.__path__, f"{MEASURES}.")
                if not module.name.endswith(NODE_SIDE)
            )
            _found.extend(importlib.import_module(name) for name in names)
        return tuple(_found)
