"""Security floors of the driver, by the data of criterion pf.secver, for the time before anything is installed."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import numbers

CURE = "set a later one (nvidia_driver_version); validation judges it by pf.secver"


@functools.cache
def _lines() -> Mapping[int, Mapping[str, Any]]:
    """Branch -> its floor. Read without the validation's models, whose import takes longer than all else of a node."""
    spec = importlib.util.find_spec("validation")
    places = list((spec and spec.submodule_search_locations) or ())
    if not places:
        return {}
    data = yaml_load((Path(places[0]) / "measures/node/12-security.yml").read_text(encoding="utf-8"))
    (found,) = [one for one in data["criteria"] if one["id"] == "pf.secver"]
    return {int(line): floor for line, floor in found["bound"]["floors"]["components"]["driver"]["lines"].items()}


def driver_floor_note(version: str) -> str:
    """That a driver is below its security floor, or of a branch that gets no fixes; "" where it is neither."""
    parts, lines = numbers(version), _lines()
    if not parts or not lines or parts[0] > max(lines):
        return ""
    floor = lines.get(parts[0])
    if floor is None:
        fixed = ", ".join(str(one["floor"]) for one in lines.values())
        why = f"its line gets no fixes, releases with them are {fixed}"
        return f"NVIDIA driver {version} has no security floor: {why}: {CURE}"
    wanted = numbers(str(floor["floor"]))
    if len(parts) == 1:  # a branch, which follows its updates
        return ""
    if parts + (0,) * (len(wanted) - len(parts)) >= wanted:
        return ""
    of = f"{floor['floor']} ({floor['advisory']}, {floor['date']})"
    return f"NVIDIA driver {version} is below its security floor {of}: {CURE}"
