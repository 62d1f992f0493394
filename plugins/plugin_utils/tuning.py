"""What role tuning does on a node and how it takes it back, from one reading of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def _memory(contents: Json, path: str) -> dict[str, Any]:
    text = str(contents.get(path) or "").strip()
    memory: dict[str, Any] = json.loads(text) if text else {}
    return {"sysctl": memory.get("sysctl", {}), "governor": memory.get("governor", "")}


def _folded(value: Any) -> str:
    return " ".join(str(value).split())


def _path(key: str) -> str:
    return "/proc/sys/" + key.replace(".", "/")


def _governors(contents: Json) -> dict[str, str]:
    return {path: str(text).strip() for path, text in contents.items() if path.endswith("/scaling_governor")}


def tuning_plan(node: Json, wanted: Json) -> dict[str, Any]:
    """What to set now, what to remember, and what does not apply.

    node: a reading of node_state. wanted: sysctl (key: value), governor, memory (path) and sysfs_root.
    """
    memory = _memory(node["contents"], wanted["memory"])
    values = {key: _folded(v) for key, v in wanted["sysctl"].items()}
    refused = sorted(key for key in values if not node["sysctls"][key]["settable"])
    kept = {key: value for key, value in values.items() if key not in refused}
    left = {key: value for key, value in memory["sysctl"].items() if key not in values}  # no longer in the inventory
    to_set = {key: value for key, value in kept.items() if value != node["sysctls"][key]["value"]}
    governors = _governors(node["contents"])
    usable = bool(governors) and not (node["in_container"] and wanted["sysfs_root"] == "/sys")
    governor = wanted["governor"] if usable else ""
    not_applicable = []
    if refused:
        not_applicable.append(f"this node's kernel does not let it set {', '.join(refused)}")
    if wanted["governor"] and not governor:
        not_applicable.append("this node has no CPU frequency scaling of its own to set a governor for")
    if not node["limits"]["raisable"]:
        not_applicable.append("this node may not raise its limits: lockable memory and open files stay at its maximum")
    return {
        "sysctl_refused": refused,
        "values": {_path(key): value for key, value in {**left, **to_set}.items()},
        "governor": governor,
        "governor_differs": bool(governor) and set(governors.values()) != {governor},
        "not_applicable": not_applicable,
        "memory": {
            "sysctl": {key: memory["sysctl"].get(key, node["sysctls"][key]["value"]) for key in kept},
            "governor": (memory["governor"] or sorted(governors.values())[0]) if governor else "",
        },
    }


def tuning_undo(node: Json, path: str) -> dict[str, Any]:
    """What to put back; nothing where the role never ran."""
    memory = _memory(node["contents"], path)
    governors = _governors(node["contents"])
    before = {_path(key): value for key, value in memory["sysctl"].items() if value}
    return {"values": {**before, **(dict.fromkeys(governors, memory["governor"]) if memory["governor"] else {})}}
