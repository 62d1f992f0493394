"""The short name by which tables of the roles know an operating system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def os_key(facts: Mapping[str, Any]) -> str:
    """debian12, ubuntu2404, el9 and so on; of anything else its name and version, which no table has."""
    name = str(facts.get("distribution", "unknown")).lower().replace(" ", "")
    version = str(facts.get("distribution_version", ""))
    major = str(facts.get("distribution_major_version", "") or version.split(".")[0])
    if name == "ubuntu":
        return name + version.replace(".", "")
    if name == "debian":
        return name + major
    if facts.get("os_family") == "RedHat" and name != "fedora":
        return "el" + major
    return name + version
