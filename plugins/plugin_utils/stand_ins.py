"""What of a node is a stand-in of the lab's: packages of a planted repository, hardware of a planted sysfs."""

from __future__ import annotations

from collections.abc import Iterable


def stand_ins_of(planted: Iterable[str], name: str, repository: str, sysfs_root: str = "/sys") -> list[str]:
    """`name` where its repository is a planted one, and hardware where sysfs is."""
    packages = [name] if repository in planted else []
    return packages + ([] if sysfs_root == "/sys" else [f"hardware (sysfs root {sysfs_root})"])
