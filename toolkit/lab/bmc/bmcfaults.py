"""Faults that a lab's BMC reports of its node: other documents, from which it answers until they are cleared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolkit.lab.bmc.constructed import CHASSIS, MANAGER, SYSTEM

Docs = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class BmcFault:
    """What it is, in words, the criterion that finds it, and what it changes in a BMC's documents.

    `spoil` returns the documents that are in force only after somebody has read the BMC once. machine: the node
    itself is asked as well, and a container shows no parts.
    """

    about: str
    found_by: str
    spoil: Callable[[Docs], Docs]
    machine: bool = False


def _supply(docs: Docs) -> Docs:
    dead = {"State": "UnavailableOffline", "Health": "Critical"}
    lost = {"State": "Enabled", "Health": "Critical"}
    docs[f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU.Slot.2"]["Status"] = dead
    docs[f"{CHASSIS}/PowerSubsystem"]["PowerSupplyRedundancy"][0]["Status"] = lost
    docs[f"{CHASSIS}/Power"]["PowerSupplies"][1]["Status"] = dead
    docs[f"{CHASSIS}/Power"]["Redundancy"][0]["Status"] = lost
    return {}


def _bios(docs: Docs) -> Docs:
    docs[f"{SYSTEM}/Bios"]["Attributes"]["SysProfile"] = "PerfPerWattOptimizedDapc"
    return {}


def _event(docs: Docs) -> Docs:
    path = f"{MANAGER}/LogServices/Sel/Entries"
    words = "Correctable memory error rate exceeded for DIMM_A1."
    event = {"Id": "2", "Severity": "Critical", "Created": "2026-11-27T10:00:00+00:00", "Message": words}
    log = docs[path]
    members = [*log["Members"], {"@odata.id": f"{path}/2"}]
    return {f"{path}/2": {"@odata.id": f"{path}/2", **event}, path: {**log, "Members": members}}


def _dimm(docs: Docs) -> Docs:
    docs[f"{SYSTEM}/Memory/DIMM.Socket.A1"]["SerialNumber"] = "D9999999"
    return {}


def _ipmi(docs: Docs) -> Docs:
    docs[f"{MANAGER}/NetworkProtocol"]["IPMI"]["ProtocolEnabled"] = True
    return {}


BMC_FAULTS = {
    "psu-not-redundant": BmcFault("one of the node's two power supplies has no input", "pf.power", _supply),
    "bios-differs": BmcFault("the BIOS has a power-saving profile, on this node alone", "pf.bios", _bios),
    "bmc-event": BmcFault("a memory error enters the BMC's event log while a validation runs", "pf.sel", _event),
    "dimm-other": BmcFault(
        "the BMC lists a memory module with another serial number than the node", "pf.parts", _dimm, machine=True
    ),
    "ipmi-on": BmcFault("IPMI over LAN is on", "pf.bmc", _ipmi),
}
