"""Which alert each fault of a lab has to fire, or why none does: one place, for unit tests and the lab's own drill."""

from __future__ import annotations

from dataclasses import dataclass

JUDGED = "no figure of a node shows it: a validation does"
AT_LOGIN = "it is in the settings of logins alone: a validation looks at them"
BUSY_ONLY = "it shows in traffic alone, and how much there is to be, only a measurement knows"
BY_PROGRAM = "the emulated GPU fails in the program that uses it; of a real one the kernel's log has the Xid (GpuXid)"
AT_BMC = "how a server is set and what parts it has is compared by a validation; nothing of it fails by itself"
AT_SWITCH = "nodes do not see how a switch is configured: a validation reads it"


@dataclass(frozen=True)
class Expected:
    """alert: what fires on the fault's node, "" for none. why: the reason for none, or for a wait of more than 60 s.
    waits_s: how long the rule waits on purpose, 0 where it is notified within a minute. also: what may fire beside it
    and is left out of notifications, or is the same in other words. twin: the other node whose matter it is, too.
    told: whether its severity is notified.
    """

    alert: str = ""
    why: str = ""
    waits_s: int = 0
    also: tuple[str, ...] = ()
    twin: bool = False
    told: bool = True


def none(why: str) -> Expected:
    """No alert, for this reason."""
    return Expected(why=why)


def waits(alert: str, seconds: int, why: str, *also: str, told: bool = True) -> Expected:
    """An alert that waits on purpose."""
    return Expected(alert, why, seconds, also, told=told)


EXPECTED = {
    "slow-link": none(BUSY_ONLY),
    "slow-sending": none(BUSY_ONLY),
    "slow-receiving": none(BUSY_ONLY),
    "cable-swapped": none(JUDGED),
    "duplicate-address": Expected("AddressTwice", twin=True),
    "dead-node": Expected("NodeDown", also=("GpuServerOutOfService",)),
    "port-down": Expected("LinkDown", also=("RdmaPortDown",)),
    "library-empty": Expected("GpuLibraryEmpty"),
    "gpu-missing": Expected("GpuMissing", also=("GpuServerOutOfService",)),
    "gpu-lost": none(BY_PROGRAM),
    "gpu-xid": none(BY_PROGRAM),
    "gpu-illegal": none(BY_PROGRAM),
    "gpu-hang": none(BY_PROGRAM),
    "ecc": Expected("GpuMemoryError", also=("GpuRepairPending",)),
    "ecc-off": Expected("GpuModeOff"),
    "throttled": waits("GpuThrottled", 300, "a burst of heat is none: a clock that stays low is", "GpuHot"),
    "pcie-x8": Expected("GpuLinkNarrow"),
    "nvlink-missing": Expected("NvLinkDown"),
    "fabric-unready": waits("GpuFabricNotReady", 120, "a start of a server with NVSwitches takes so long"),
    "no-persistence": Expected("GpuModeOff"),
    "gpu-exclusive": Expected("GpuModeOff"),
    "wrong-result": none(JUDGED),
    "slow-gpu": none(JUDGED),
    "psu-not-redundant": waits(
        "PowerSupplyFailed",
        300,
        "each reading of a BMC is a login in its log (monitoring_bmc)",
        "PowerNotRedundant",
        "ServerUnhealthy",
    ),
    "bios-differs": none(AT_BMC),
    "bmc-event": none("events of a BMC's log are read by a validation (pf.sel)"),
    "dimm-other": none(AT_BMC),
    "ipmi-on": none(AT_BMC),
    "cables-crossed": none(AT_SWITCH),
    "switch-mtu": none(AT_SWITCH),
    "switch-pfc": none(AT_SWITCH),
    "switch-pfc-two": none(AT_SWITCH),
    "switch-dscp": none(AT_SWITCH),
    "switch-cnp": none(AT_SWITCH),
    "storage-slow": none(BUSY_ONLY),
    "storage-hangs": none("a FUSE file system stands in for the server; MountSilent looks at those of real ones"),
    "rxe-missing": Expected("RdmaDeviceGone", also=("UnitFailed",)),
    "wrong-mtu": Expected("MtuLowered"),
    "rocev1-gid": none(JUDGED),
    "firewall-4791": none(JUDGED),
    "memlock-low": none(AT_LOGIN),
    "nccl-pinned": none(AT_LOGIN),
    "sysctl-drift": none("the value in force is another than the file says, which is as deployed: a validation looks"),
    "wrong-clock": Expected("ClockWrong", also=("ServiceDown", "MetricsStale", "ClockOff")),
    "dscp-unset": none(JUDGED),
    "lossy-link": none(BUSY_ONLY),
    "port-closed": none(JUDGED),
    "flapping-port": Expected("LinkFlaps", also=("LinkDown",)),
    "noisy-neighbour": none("nodes are to be busy: whether it is somebody's job, a figure of the node does not say"),
    "names-wrong": none("of /etc/hosts only a block is the toolkit's, so no ledger has its sum: a validation looks"),
    "dns-dead": Expected("NameServerSilent"),
    "wrong-time-zone": none(JUDGED),
    "clock-free": Expected("ServiceDown"),
    "docker-stopped": Expected("ServiceDown"),
    "unit-failed": Expected("UnitFailed"),
    "reboot-waits": waits("RebootWaits", 7200, "who upgrades reboots afterwards", told=False),
    "few-files": none(AT_LOGIN),
    "disk-full": Expected("DiskFullNow"),
}
