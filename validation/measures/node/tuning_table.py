"""How a GPU server's kernel ought to be set: each bound with who says so. What has no public bound is stated only."""

from __future__ import annotations

GOVERNOR = "performance"
GOVERNOR_SOURCE = "NVIDIA Grace CPU benchmarking guide, platform configuration (governor performance)"
#: Processors of a server with accelerators are kept from states that take as long to leave, in microseconds.
IDLE_LATENCY_US = 100
IDLE_SOURCE = "Red Hat Enterprise Linux, tuned profile accelerator-performance (C-states with a latency below 100 us)"
NUMA_SOURCE = "NVIDIA Grace CPU benchmarking guide; AMD ROCm, system validation (automatic NUMA balancing off)"
IOMMU_SOURCE = "NVIDIA CUDA programming guide (IOMMU on Linux); NVIDIA NIM, PCIe multi-GPU systems (iommu=pt)"
RECLAIM_SOURCE = "Linux, Documentation/admin-guide/sysctl/vm.rst (zone_reclaim_mode off where caching matters)"
MEMLOCK_SOURCE = "NVIDIA NCCL troubleshooting guide (memlock); Open MPI FAQ, registered memory limits"
SOURCES = (GOVERNOR_SOURCE, IDLE_SOURCE, NUMA_SOURCE, IOMMU_SOURCE, RECLAIM_SOURCE, MEMLOCK_SOURCE)
#: How the kernel names an IOMMU that leaves transfers alone (ABI/testing/sysfs-kernel-iommu_groups); none: no IOMMU.
PASSED_THROUGH = ("identity", "none")
#: Whose cards' transfers the bound is about; of other machines (Grace and its like) nothing public tells.
IOMMU_MACHINES = ("x86_64",)
