"""Files of variables that Ansible does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.project import loaded

_code: Any = loaded(Path(__file__).resolve().parents[2], "validation/base/unread_variables.py")


def unread_variables(inventory: str) -> list[str]:
    """The first of an inventory's folder, in a sentence; none where each is read."""
    said = _code.unread(Path(inventory))
    return [said] if said else []
