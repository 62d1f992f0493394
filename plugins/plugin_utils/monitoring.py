"""Which nodes role monitoring asks for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def nodes_running(names: Iterable[str], unit: str, hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Hosts on which a unit was active when role monitoring read them; hosts that it did not read are left out."""

    def active(name: str) -> bool:
        units = (hostvars[name].get("monitoring_before") or {}).get("units") or {}
        return bool((units.get(unit) or {}).get("active"))

    return [name for name in names if active(name)]
