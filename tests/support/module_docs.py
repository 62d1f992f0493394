"""What our modules document of themselves, without importing them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).parents[2]


def document(module: str, name: str) -> Any:
    """DOCUMENTATION or RETURN of a module in plugins/modules."""
    tree = ast.parse((REPO / f"plugins/modules/{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return yaml.safe_load(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no {name}")
