"""Constructed servers as a BMC describes them by Redfish: written by hand after the public schemas and Dell's paths.

No part of it was recorded from a machine. Three generations: iDRAC 9 of 14G (`Power`, `Thermal`, no `$expand`), iDRAC 9
of 16G (both forms of power) and iDRAC 10 of 17G (`PowerSubsystem` and `ThermalSubsystem` alone).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from toolkit.lab.bmc.registry import registry

Doc = dict[str, Any]
ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/System.Embedded.1"
CHASSIS = f"{ROOT}/Chassis/System.Embedded.1"
MANAGER = f"{ROOT}/Managers/iDRAC.Embedded.1"
UPDATES = f"{ROOT}/UpdateService/FirmwareInventory"
BIOS: Doc = {
    "SysProfile": "PerfOptimized", "ProcTurboMode": "Enabled", "NodeInterleave": "Disabled", "LogicalProc": "Enabled",
    "ProcVirtualization": "Enabled", "MmioAbove4Gb": "Enabled", "SriovGlobalEnable": "Enabled", "BootMode": "Uefi",
    "PcieAspmL1": "Disabled", "MemOpMode": "OptimizerMode", "SystemServiceTag": "", "SetupPassword": None,
    "ProcPwrPerf": "MaxPerf", "ProcCStates": "Disabled", "AcPwrRcvryUserDelay": 60,
}  # fmt: skip
BIOS_OF: dict[str, Doc] = {
    "Intel": {"ProcX2Apic": "Enabled", "SubNumaCluster": "Disabled"},
    "AMD": {"IommuSupport": "Enabled", "NumaNodesPerSocket": "1"},
}
LOCKDOWN = "Lockdown.1.SystemLockdown"


@dataclass(frozen=True)
class Kind:
    """A server model of which constructed servers are made. `generation`: of Dell's servers."""

    model: str
    generation: int
    bios: str
    manager: str
    gpu: str
    gpus: int
    dimms: int
    watts: int
    processors: str = "Intel"

    @property
    def old_power(self) -> bool:
        """Whether power and fans are in the resources of before 2020, as on iDRAC 9."""
        return self.generation < 17

    @property
    def new_power(self) -> bool:
        """Whether they are in subsystems."""
        return self.generation >= 16


KINDS = {
    "14G": Kind("PowerEdge C4140", 14, "2.24.0", "7.00.00.182", "Tesla V100-SXM2-16GB", 4, 12, 2400),
    "16G": Kind("PowerEdge XE9680", 16, "2.7.4", "7.20.60.50", "NVIDIA H100 80GB HBM3", 8, 32, 2800),
    "17G": Kind("PowerEdge XE7745", 17, "1.7.5", "1.20.80.51", "NVIDIA H200 NVL", 8, 24, 3200, "AMD"),
}
RESETS = ("On", "ForceOff", "ForceRestart", "PowerCycle")
RESET: Doc = {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": [*RESETS]}
OK: Doc = {"State": "Enabled", "Health": "OK"}


def to(path: str) -> Doc:
    """A link to a resource."""
    return {"@odata.id": path}


def tag(number: int) -> str:
    """The service tag of a constructed server, 7 letters and digits as Dell's."""
    return f"EAT{number:04d}"


def server(number: int, kind: str | Kind = "16G", name: str = "node") -> dict[str, Doc]:
    """The resources of a constructed server, by path; `number` makes its serial numbers differ from others'."""
    made, docs = KINDS[kind] if isinstance(kind, str) else kind, {}
    own = tag(number)

    def put(path: str, **fields: Any) -> Doc:
        docs[path] = {"@odata.id": path, "Id": path.rpartition("/")[2], **fields}
        return to(path)

    def collection(path: str, members: list[Doc]) -> Doc:
        docs[path] = {"@odata.id": path, "Members": members, "Members@odata.count": len(members)}
        return to(path)

    cpus = [
        put(f"{SYSTEM}/Processors/CPU.Socket.{n}", ProcessorType="CPU", Model="Constructed CPU", TotalCores=32,
            Status=OK, SerialNumber="")
        for n in (1, 2)
    ]  # fmt: skip
    gpus = []
    for n in range(1, made.gpus + 1):
        path = f"{SYSTEM}/Processors/Video.Slot.{n}-1"
        metrics = put(f"{path}/ProcessorMetrics", BandwidthPercent=0)
        gpus.append(put(path, ProcessorType="GPU", Model=made.gpu, SerialNumber=f"G{number:04d}{n:03d}",
                        Metrics=metrics, PartNumber="900-0", FirmwareVersion="96.00.74.00.01", Status=OK))  # fmt: skip
    collection(f"{SYSTEM}/Processors", [*cpus, *gpus])
    dimms = [
        put(f"{SYSTEM}/Memory/DIMM.Socket.A{n}", CapacityMiB=65536, SerialNumber=f"D{number:04d}{n:03d}",
            PartNumber="M321R8GA0", Model="DDR5", Status=OK)
        for n in range(1, made.dimms + 1)
    ]  # fmt: skip
    dimms.append(put(f"{SYSTEM}/Memory/DIMM.Socket.B1", CapacityMiB=0, Status={"State": "Absent"}))
    collection(f"{SYSTEM}/Memory", dimms)
    cards = [
        put(f"{CHASSIS}/NetworkAdapters/NIC.Slot.{n}", Model="ConnectX-6 Dx", SerialNumber=f"N{number:04d}{n:03d}",
            Controllers=[{"FirmwarePackageVersion": "22.36.10.10"}], Status=OK)
        for n in (1, 2)
    ]  # fmt: skip
    collection(f"{CHASSIS}/NetworkAdapters", cards)
    collection(
        f"{SYSTEM}/EthernetInterfaces",
        [put(f"{SYSTEM}/EthernetInterfaces/NIC.Slot.{n}-1-1", PermanentMACAddress=mac(number, n)) for n in (1, 2)],
    )
    drives = [
        put(f"{SYSTEM}/Storage/CPU.1/Drives/Disk.Bay.{n}", Model="Constructed NVMe",
            SerialNumber=f"S{number:04d}{n:03d}", Revision="1.2.3", CapacityBytes=3_840_000_000_000, Protocol="NVMe",
            Status=OK)
        for n in (0, 1)
    ]  # fmt: skip
    collection(f"{SYSTEM}/Storage", [put(f"{SYSTEM}/Storage/CPU.1", Drives=drives)])
    _bios(put, made, own)
    _power(put, collection, made, own)
    collection(f"{CHASSIS}/Sensors", [
        put(f"{CHASSIS}/Sensors/SystemBoardInletTemp", Name="Inlet", Reading=23, ReadingUnits="Cel", Status=OK)
    ])  # fmt: skip
    logs = collection(f"{MANAGER}/LogServices/Sel/Entries", [
        put(f"{MANAGER}/LogServices/Sel/Entries/1", Created="2026-11-01T08:00:00+00:00", Severity="OK",
            Message="Log cleared.")
    ])  # fmt: skip
    collection(f"{MANAGER}/LogServices", [put(f"{MANAGER}/LogServices/Sel", Entries=logs)])
    _manager(put, collection, made)
    versions = {"BIOS": made.bios, "Integrated Dell Remote Access Controller": made.manager,
                f"ConnectX-6 Dx - {mac(number, 1).upper()}": "22.36.10.10"}  # fmt: skip
    collection(UPDATES, [
        put(f"{UPDATES}/{state}-{n}-{version}", Name=name_, Version=version)
        for n, (name_, now) in enumerate(versions.items())
        for state, version in (("Installed", now), ("Previous", "0.1"))
    ])  # fmt: skip
    put(f"{ROOT}/UpdateService", FirmwareInventory=to(UPDATES))
    put(SYSTEM, Manufacturer="Dell Inc.", Model=made.model, SKU=own, SerialNumber=f"CN{own}", BiosVersion=made.bios,
        PowerState="On", Actions={"#ComputerSystem.Reset": dict(RESET)}, HostName=name,
        Processors=to(f"{SYSTEM}/Processors"), Memory=to(f"{SYSTEM}/Memory"),
        EthernetInterfaces=to(f"{SYSTEM}/EthernetInterfaces"), Storage=to(f"{SYSTEM}/Storage"),
        Bios=to(f"{SYSTEM}/Bios"))  # fmt: skip
    for folder, only in (("Systems", SYSTEM), ("Chassis", CHASSIS), ("Managers", MANAGER)):
        collection(f"{ROOT}/{folder}", [to(only)])
    put(ROOT, RedfishVersion="1.17.0", Vendor="Dell", Oem={"ElasticAI": {"Emulated": True, "Constructed": True}},
        ProtocolFeaturesSupported={"ExpandQuery": dict.fromkeys(("ExpandAll", "Levels"), made.generation >= 16)},
        **{key: to(f"{ROOT}/{key}") for key in ("Systems", "Chassis", "Managers", "UpdateService")})  # fmt: skip
    return copy.deepcopy(docs)


def mac(number: int, card: int) -> str:
    """MAC address of a card's first port, of those for local use."""
    return f"02:ea:00:{number // 256:02x}:{number % 256:02x}:{card:02x}"


def _bios(put: Any, made: Kind, own: str) -> None:
    attributes = {**BIOS, **BIOS_OF[made.processors], "SystemServiceTag": own}
    clear = {"target": f"{SYSTEM}/Bios/Settings/Actions/Oem/DellManager.ClearPending"}
    put(f"{SYSTEM}/Bios", Attributes=attributes,
        **{"@Redfish.Settings": {"SettingsObject": to(f"{SYSTEM}/Bios/Settings")}})  # fmt: skip
    put(f"{SYSTEM}/Bios/Settings", Attributes={}, Actions={"Oem": {"#DellManager.ClearPending": clear}})
    put(f"{SYSTEM}/Bios/BiosRegistry", **registry(attributes))


def _power(put: Any, collection: Any, made: Kind, own: str) -> None:
    more = {"Model": "PWR SPLY", "PowerCapacityWatts": made.watts, "FirmwareVersion": "00.1D.7D", "Status": OK}
    supplies = [{"MemberId": f"PSU.Slot.{n}", "SerialNumber": f"P{own}{n}", **more} for n in (1, 2)]
    links: Doc = {"NetworkAdapters": to(f"{CHASSIS}/NetworkAdapters"), "Sensors": to(f"{CHASSIS}/Sensors")}
    if made.old_power:
        control = {"PowerLimit": {"LimitInWatts": None}, "PowerConsumedWatts": 900}
        links["Power"] = put(f"{CHASSIS}/Power", PowerSupplies=supplies, PowerControl=[control],
                             Redundancy=[{"Mode": "N+m", "Status": OK}])  # fmt: skip
        links["Thermal"] = put(f"{CHASSIS}/Thermal", Fans=[{"FanName": "Fan1", "Reading": 9000, "Status": OK}])
    if made.new_power:
        there = [put(f"{CHASSIS}/PowerSubsystem/PowerSupplies/{one['MemberId']}", **one) for one in supplies]
        links["PowerSubsystem"] = put(
            f"{CHASSIS}/PowerSubsystem",
            PowerSupplies=collection(f"{CHASSIS}/PowerSubsystem/PowerSupplies", there),
            PowerSupplyRedundancy=[{"RedundancyType": "NPlusM", "Status": OK}],
        )
        links["EnvironmentMetrics"] = put(f"{CHASSIS}/EnvironmentMetrics", PowerWatts={"Reading": 900},
                                          PowerLimitWatts={"ControlMode": "Disabled", "SetPoint": 0})  # fmt: skip
        fans = [put(f"{CHASSIS}/ThermalSubsystem/Fans/Fan1", Name="Fan1", Status=OK,
                    SpeedPercent={"Reading": 45, "SpeedRPM": 9000})]  # fmt: skip
        links["ThermalSubsystem"] = put(
            f"{CHASSIS}/ThermalSubsystem", Fans=collection(f"{CHASSIS}/ThermalSubsystem/Fans", fans)
        )
    put(CHASSIS, **links)


def _manager(put: Any, collection: Any, made: Kind) -> None:
    attributes = {"CurrentNIC.1.Selection": "Dedicated", "IPMILan.1.Enable": "Disabled",
                  LOCKDOWN: "Disabled"}  # fmt: skip
    room = "EID_674_Manager" if made.generation < 17 else "OemManager"  # iDRAC 10 has its own name for the same
    actions = {f"#OemManager.{verb}SystemConfiguration":
               {"target": f"{MANAGER}/Actions/Oem/{room}.{verb}SystemConfiguration"}
               for verb in ("Export", "Import")}  # fmt: skip
    put(f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1", Attributes=attributes)
    put(MANAGER, Model=f"{made.generation}G Monolithic", FirmwareVersion=made.manager,
        NetworkProtocol=put(f"{MANAGER}/NetworkProtocol", IPMI={"ProtocolEnabled": False, "Port": 623}),
        LogServices=to(f"{MANAGER}/LogServices"), Actions={"Oem": actions},
        Links={"Oem": {"Dell": {"Jobs": collection(f"{MANAGER}/Oem/Dell/Jobs", [])}}})  # fmt: skip
