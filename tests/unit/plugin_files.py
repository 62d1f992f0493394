"""Loads the project's Ansible plugins as modules. Their folder is on no import path: its files have names as `os`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "plugins" / "filter"


def load_filters(name: str) -> dict[str, Any]:
    """The filters of plugins/filter/<name>.py by their names."""
    spec = importlib.util.spec_from_file_location(f"elastic_ai_filter_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    filters: dict[str, Any] = module.FilterModule().filters()
    return filters
