"""The attribute registry of a constructed BIOS, after the form that Dell's BMCs print. No part of it was recorded.

Attributes and values are those of the public lists; the rules between them are the one that is known of Dell's servers:
under a system profile other than Custom its members are read-only, and have the profile's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Doc = dict[str, Any]
SWITCH = ("Enabled", "Disabled")
PROFILES: Mapping[str, Mapping[str, str]] = {
    "PerfOptimized": {"ProcPwrPerf": "MaxPerf", "ProcTurboMode": "Enabled", "ProcCStates": "Disabled",
                      "PcieAspmL1": "Disabled"},
    "PerfPerWattOptimizedDapc": {"ProcPwrPerf": "SysDbpm", "ProcTurboMode": "Enabled", "ProcCStates": "Enabled",
                                 "PcieAspmL1": "Enabled"},
}  # fmt: skip
"""System profile -> values of its members."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "SysProfile": (*PROFILES, "Custom"),
    "ProcPwrPerf": ("MaxPerf", "SysDbpm", "OsDbpm"),
    "ProcTurboMode": SWITCH, "ProcCStates": (*SWITCH, "Autonomous"), "PcieAspmL1": SWITCH,
    "NodeInterleave": SWITCH, "LogicalProc": SWITCH, "ProcVirtualization": SWITCH, "MmioAbove4Gb": SWITCH,
    "SriovGlobalEnable": SWITCH, "BootMode": ("Uefi", "Bios"), "MemOpMode": ("OptimizerMode", "SpareMode"),
    "ProcX2Apic": SWITCH, "SubNumaCluster": ("Disabled", "2-Way"),
    "IommuSupport": SWITCH, "NumaNodesPerSocket": ("1", "2", "4"),
}  # fmt: skip


def registry(attributes: Mapping[str, Any]) -> Doc:
    """The registry of a BIOS that has these attributes."""
    entries: list[Doc] = []
    for name in attributes:
        if name in VALUES:
            values = [{"ValueName": value, "ValueDisplayName": value} for value in VALUES[name]]
            entries.append({"AttributeName": name, "Type": "Enumeration", "ReadOnly": False, "Value": values})
        elif name == "AcPwrRcvryUserDelay":
            bounds = {"LowerBound": 60, "UpperBound": 600}
            entries.append({"AttributeName": name, "Type": "Integer", "ReadOnly": False, **bounds})
        else:
            kind = "Password" if name.endswith("Password") else "String"
            entries.append({"AttributeName": name, "Type": kind, "ReadOnly": kind == "String"})
    rules: list[Doc] = []
    for member in next(iter(PROFILES.values())):
        if member not in attributes:
            continue
        rules.append(_rule(member, "ReadOnly", True, "NEQ", "Custom"))
        for profile, values_ in PROFILES.items():
            rules.append(_rule(member, "CurrentValue", values_[member], "EQU", profile))
    return {"Id": "BiosRegistry", "RegistryEntries": {"Attributes": entries, "Dependencies": rules}}


def _rule(member: str, what: str, value: Any, condition: str, profile: str) -> Doc:
    source = {"MapFromAttribute": "SysProfile", "MapFromProperty": "CurrentValue", "MapFromCondition": condition,
              "MapFromValue": profile}  # fmt: skip
    dependency = {"MapFrom": [source], "MapToAttribute": member, "MapToProperty": what, "MapToValue": value}
    return {"DependencyFor": member, "Type": "Map", "Dependency": dependency}


def locked(name: str, values: Mapping[str, Any]) -> bool:
    """Whether an attribute is read-only with these values."""
    return name in PROFILES["PerfOptimized"] and values.get("SysProfile") != "Custom"


def followed(values: Mapping[str, Any]) -> Doc:
    """The same values, with those of the profile's members."""
    members = PROFILES.get(str(values.get("SysProfile")), {})
    return {name: members.get(name, value) for name, value in values.items()}
