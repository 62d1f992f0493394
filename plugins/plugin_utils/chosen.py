"""What a table of conditions comes to: roles say what depends on what as data, one condition a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def chosen(entries: Iterable[Mapping[str, Any]]) -> list[Any]:
    """All that the entries whose `when` holds have in their lists `take`, in this order; without `when` one holds.

    `when` is true or false, and nothing that a template made text of.
    """
    taken: list[Any] = []
    for entry in entries:
        holds = entry.get("when", True)
        if not isinstance(holds, bool):
            raise AnsibleFilterError(f"chosen: `when` of {entry['take']} is neither true nor false: {holds!r}")
        if holds:
            taken += entry["take"]
    return taken
