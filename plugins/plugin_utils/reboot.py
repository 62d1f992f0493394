"""Why a node waits for a reboot, and which of its units did not come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

REASONS = "/run/elastic-ai/reboot-required/"


def reboot_reasons(node: Mapping[str, Any], first_kernel: str = "") -> list[str]:
    """The reasons that roles and packages left, each with who says so; from a reading of node_state.

    first_kernel: an installed kernel that the node boots before anything is built, "" where it boots none.
    """
    reasons = [
        f"{PurePosixPath(path).name}: {line.strip()}"
        for path, text in sorted((node.get("contents") or {}).items())
        if path.startswith(REASONS)
        for line in str(text).splitlines()
        if line.strip()
    ]
    hints = sorted(set(node.get("reboot_hints") or ()))
    reasons += [f"packages that were upgraded: {', '.join(hints)}"] if hints else []
    return reasons + (
        [f"kernel: {node['kernel']} runs, {first_kernel} is the newest installed"] if first_kernel else []
    )


def kernel_lost(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A kernel that neither ran before nor is the newest installed; from readings of node_state around the reboot."""
    ran, runs, newest = before["kernel"], after["kernel"], (after["kernels"] or [after["kernel"]])[0]
    if after["in_container"] or runs in (ran, newest):
        return []
    return [
        f"kernel {runs} runs, {ran} ran before and {newest} is the newest installed, so that modules built for that "
        f"are missing: choose it (grub-set-default, or grubby --set-default /boot/vmlinuz-{newest}) and reboot"
    ]


def unit_names(listing: str) -> set[str]:
    """Unit names in the output of `systemctl list-units --plain --no-legend`."""
    return {line.split()[0] for line in listing.splitlines() if line.split()}


def units_lost(before: str, after: str) -> list[str]:
    """Units that the first listing has and the second has not."""
    return sorted(unit_names(before) - unit_names(after))


def reboot_faults(node: Mapping[str, Any], after: Mapping[str, Any], units: Mapping[str, str]) -> list[str]:
    """What is not as it was before a reboot: units, the kernel, reasons for another.

    node, after: readings of node_state around the reboot. units: what systemctl listed as active, active_now, failed
    and failed_now.
    """
    return [
        *(f"{unit} was active before and is not" for unit in units_lost(units["active"], units["active_now"])),
        *(f"{unit} has failed" for unit in units_lost(units["failed_now"], units["failed"])),
        *kernel_lost(node, after),
        *(f"{reason} (still there)" for reason in reboot_reasons(after)),
    ]


def reboot_account(waiting: Sequence[str], rebooted: Sequence[str], batch: Sequence[str], name: str) -> str:
    """Which of the nodes that wait were rebooted, which are in this batch with this one, and which were not touched."""
    now = sorted({*batch, name})
    rest = [node for node in dict.fromkeys(waiting) if node not in {*rebooted, *now}]
    return (
        f"Rebooted and verified: {', '.join(rebooted) or 'none'}. In this batch: {', '.join(now)}. "
        f"Not touched: {', '.join(rest) or 'none'}."
    )
