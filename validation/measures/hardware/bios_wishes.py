"""BIOS attributes of a GPU node: which values are wanted, and which have to be alike on all nodes of a group.

Names and values are those of Dell's attribute registry as BMCs print them. An attribute that a BIOS does not have is
not judged: Intel and AMD differ, and so do generations. The inventory can want others (`bmc.bios`).
"""

from __future__ import annotations

from collections.abc import Mapping

#: Attribute -> the values that are right for a GPU node, and why.
WISHES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "SysProfile": (("PerfOptimized", "Custom"), "a saving profile lowers clocks"),
    "ProcPwrPerf": (("MaxPerf", "OsDbpm"), "processors at their clocks"),
    "ProcTurboMode": (("Enabled",), "processors at their clocks"),
    "NodeInterleave": (("Disabled",), "memory beside its processor"),
    "ProcVirtualization": (("Enabled",), "IOMMU and x2APIC"),
    "IommuSupport": (("Enabled",), "IOMMU and x2APIC"),
    "ProcX2Apic": (("Enabled",), "interrupts of many cards"),
    "MmioAbove4Gb": (("Enabled",), "whole memory of a GPU for GPUDirect"),
    "SriovGlobalEnable": (("Enabled",), "virtual functions of network cards"),
    "PcieAspmL1": (("Disabled",), "links that never sleep"),
    "MemOpMode": (("OptimizerMode",), "all channels and all memory"),
    "BootMode": (("Uefi",), "GPUs with large memory do not start without"),
}
#: Attributes that a site chooses, and that are then the same on all its nodes of a kind.
ALIKE = (
    *WISHES,
    *("LogicalProc", "SubNumaCluster", "NumaNodesPerSocket", "CcxAsNumaDomain", "ProcCStates", "ProcC1E"),
    *("MonitorMwait", "UncoreFrequency", "WorkloadProfile", "DeterminismSlider", "PowerProfileSelect", "ApbDis"),
    *("DfCState", "MemFrequency", "MemPatrolScrub", "MemRefreshRate", "SecureBoot", "TpmSecurity"),
)
SOURCE = "Dell, BIOS characterization and tuning papers of 14G to 16G servers; NVIDIA GPUDirect RDMA (BAR1 above 4 GiB)"
