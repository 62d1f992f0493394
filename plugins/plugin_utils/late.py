"""Filters by name whose code is imported when one of them is first used.

Ansible reads every file of plugins/filter for each filter that a process meets for the first time, and a process is
forked for each task: importing all code took 37 ms of CPU each time.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.loader import filter_loader, test_loader

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import templates

ROLES = Path(__file__).resolve().parents[2] / "roles"
PLUGINS = "ansible_collections.elastic_ai.toolkit.plugins"


def _late(module: str, name: str) -> Callable[..., Any]:
    def called(*values: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(f"{PLUGINS}.plugin_utils.{module}"), name)(*values, **options)

    return called


def filters_of(code: Mapping[str, tuple[str, ...]]) -> dict[str, Callable[..., Any]]:
    """What FilterModule.filters returns. code: module of plugin_utils -> names of its functions."""
    return {name: _late(module, name) for module, names in code.items() for name in names}


@cache
def load() -> None:
    """Import and read what all filters need: for the process that Ansible forks its workers from."""
    package = importlib.import_module(f"{PLUGINS}.filter")
    for group in pkgutil.iter_modules(package.__path__):
        for module in importlib.import_module(f"{PLUGINS}.filter.{group.name}").CODE:
            importlib.import_module(f"{PLUGINS}.plugin_utils.{module}")
    importlib.import_module(f"{PLUGINS}.plugin_utils.compatibility").known()
    importlib.import_module(f"{PLUGINS}.plugin_utils.needs").load(ROLES)
    templates.keep(constants.DEFAULT_LOCAL_TMP)
    for loader, name in ((filter_loader, "ansible.builtin.combine"), (test_loader, "ansible.builtin.match")):
        loader.get(name)  # by the first of them Ansible imports all that it brings
